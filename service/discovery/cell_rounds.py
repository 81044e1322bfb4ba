"""Dialogues: what is asked of cells, round by round.

A dialogue is a generator that yields the commands of one round, all of which may be sent at once and arrive in any
order, and is sent their answers in theirs. It keeps nothing outside itself: whoever leads it may abandon it anywhere.

The dialogues here find a matrix's size: asked of the head, or, where that has no record, of the cells that must be
there (§IV.B.1).
"""

from collections.abc import Generator, Sequence
from typing import TypeVar

from service.discovery.cell import CellAnswer, CellState, Command, ReadState, UpdateMatrix
from service.discovery.matrix import (
    Matrix,
    MatrixLimits,
    MatrixSize,
    PairKey,
    head_address,
    probe_addresses,
    recover_matrix,
)

T = TypeVar("T")

Rounds = Generator[Sequence[Command], Sequence[CellAnswer], T]


def run_together(dialogues: Sequence[Rounds[T]]) -> Rounds[list[T]]:
    """Lead several dialogues at once, their rounds as one; return their results, in their order."""
    results: dict[int, T] = {}
    rounds: dict[int, Sequence[Command]] = {}
    answers: dict[int, Sequence[CellAnswer]] = {}
    while True:
        for place, dialogue in enumerate(dialogues):
            if place in results:
                continue
            try:
                rounds[place] = dialogue.send(answers[place]) if place in answers else next(dialogue)
            except StopIteration as stopped:
                results[place] = stopped.value
                rounds.pop(place, None)
        if not rounds:
            return [results[place] for place in range(len(dialogues))]
        heard = iter((yield [command for commands in rounds.values() for command in commands]))
        answers = {place: [next(heard) for _ in commands] for place, commands in rounds.items()}


def find_size(pair: PairKey, limits: MatrixLimits) -> Rounds[MatrixSize | None]:
    """Return a matrix's size; None if nothing has been registered in it."""
    (head,) = yield [ReadState(head_address(pair))]
    if head.matrix is not None:
        return head.matrix.size
    sizes = yield from _probe_sizes(pair, limits)
    return max(sizes, default=None)


def find_or_create_matrix(pair: PairKey, limits: MatrixLimits) -> Rounds[Matrix]:
    """Return a matrix's record; where there is none, make one, and recover what other cells know of it (§IV.C.5)."""
    (head,) = yield [ReadState(head_address(pair))]
    while head.matrix is None:
        sizes = yield from _probe_sizes(pair, limits)
        found = recover_matrix(sizes) if sizes else Matrix()
        standing = CellState.FILLING if sizes else CellState.OPEN
        (head,) = yield [UpdateMatrix(head_address(pair), None, found, standing)]
    return head.matrix


def _probe_sizes(pair: PairKey, limits: MatrixLimits) -> Rounds[list[MatrixSize]]:
    answers = yield [ReadState(place) for place in probe_addresses(pair, limits.partitions, limits.replicas)]
    return [answer.member.size for answer in answers if answer.member is not None]


def latest_size(size: MatrixSize, *answers: CellAnswer) -> MatrixSize:
    """Return the newest size known: this one, or what cells say. What closed cells say is of no use to others."""
    told = [answer.member.size for answer in answers if answer.member and not answer.stands(CellState.CLOSED)]
    return max([size, *told])
