"""Protocols that send commands to the cells of a matrix in rounds, among them the protocol that finds a matrix's size.

A protocol is a generator (type ``Rounds``). It yields the commands of one round, which may be sent concurrently and
arrive in any order. It then receives the answers in the order of the commands. A protocol has no other state, so it may
be abandoned at any time.

The size of a matrix is read from its head node, cell (0,0). If the head node has lost its record, the size is read from
a few other cells, because every cell stores it. In every matrix with more than one cell, at least one of these few
cells exists (§IV.B.1).
"""

from collections.abc import Generator, Sequence
from typing import TypeVar

from service.discovery.matrix import (
    Matrix,
    MatrixLimits,
    MatrixSize,
    PairKey,
    head_address,
    probe_addresses,
    recover_matrix,
)
from service.discovery.matrix_cell import CellAnswer, CellState, Command, ReadState, UpdateMatrix

T = TypeVar("T")

Rounds = Generator[Sequence[Command], Sequence[CellAnswer], T]


def run_together(protocols: Sequence[Rounds[T]]) -> Rounds[list[T]]:
    """Run several protocols concurrently, and return their results in the order of ``protocols``.

    Each round consists of the next commands of all protocols that have not ended.
    """
    results: dict[int, T] = {}
    rounds: dict[int, Sequence[Command]] = {}
    answers: dict[int, Sequence[CellAnswer]] = {}
    while True:
        for place, protocol in enumerate(protocols):
            if place in results:
                continue
            try:
                rounds[place] = protocol.send(answers[place]) if place in answers else next(protocol)
            except StopIteration as stopped:
                results[place] = stopped.value
                rounds.pop(place, None)
        if not rounds:
            return [results[place] for place in range(len(protocols))]
        received = iter((yield [command for commands in rounds.values() for command in commands]))
        answers = {place: [next(received) for _ in commands] for place, commands in rounds.items()}


def find_size(pair: PairKey, limits: MatrixLimits) -> Rounds[MatrixSize | None]:
    """Return the size of the matrix of an AV-pair; None if nothing has been registered in the matrix.

    If the head node was lost, the size is read from other cells. ``limits`` bounds the search for them, because it has
    the maximum size of a matrix.
    """
    (head,) = yield [ReadState(head_address(pair))]
    if head.matrix is not None:
        return head.matrix.size
    sizes = yield from _probe_sizes(pair, limits)
    return max(sizes, default=MatrixSize() if head.load.names else None)


def find_or_create_matrix(pair: PairKey, limits: MatrixLimits) -> Rounds[Matrix]:
    """Return the record of the matrix of an AV-pair, which is stored in the matrix's head node.

    If the head node has no record, a new one is stored there: from the size that other cells have stored, or, if there
    is none, for a matrix of one cell (§IV.C.5). ``limits`` has the maximum size of a matrix, within which other cells
    are looked for.
    """
    (head,) = yield [ReadState(head_address(pair))]
    while head.matrix is None:
        sizes = yield from _probe_sizes(pair, limits)
        found = recover_matrix(sizes) if sizes else Matrix()
        state = CellState.FILLING if sizes else CellState.OPEN
        (head,) = yield [UpdateMatrix(head_address(pair), None, found, state)]
    return head.matrix


def _probe_sizes(pair: PairKey, limits: MatrixLimits) -> Rounds[list[MatrixSize]]:
    answers = yield [ReadState(place) for place in probe_addresses(pair, limits)]
    return [answer.member.size for answer in answers if answer.member is not None]


def latest_size(size: MatrixSize, *answers: CellAnswer) -> MatrixSize:
    """Return the newest matrix size: ``size``, or a newer one from ``answers``. Answers of closed cells are ignored."""
    sizes = [answer.member.size for answer in answers if answer.member and not answer.is_in(CellState.CLOSED)]
    return max([size, *sizes])
