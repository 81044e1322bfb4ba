"""Protocols that send commands to the cells of a matrix in rounds.

A matrix is a table of cells that stores the channels or entries with one attribute-value pair (AV-pair). A protocol is
a generator of type ``Rounds``. It yields the commands of one round, and the caller sends it the answers to these
commands in the same order. The commands of one round may be sent concurrently. All state of a protocol is in the
generator, so a protocol may be abandoned at any time.

This module also contains the protocol that finds the size of a matrix:

1. The size is read from the matrix's *head node*, cell (0,0).
2. If the head node has lost its record, the size is read from a few other cells, because every cell stores it. Every
   matrix with more than one cell includes at least one of these cells (Gao & Steenkiste §IV.B.1).
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
    """Run several protocols at the same time, and return their results in the same order.

    A protocol is a generator. In each round, it yields commands to cells, and the caller sends back the cells' answers.
    This function is such a generator, too. Each of its rounds combines the next commands of all protocols that have not
    finished.
    """
    if not protocols:
        return []
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
    """Return the size of the matrix of an attribute-value pair; None if nothing has been registered in it.

    The matrix is the table of cells that stores the channels and entries with this pair. Its size is read from its head
    node, cell (0,0), or from other cells if the head node's record was lost. The maximum matrix size in ``limits``
    determines which other cells are asked.

    This is a generator: it yields the commands of each round, and the caller sends it the cells' answers.
    """
    (head,) = yield [ReadState(head_address(pair))]
    if head.matrix is not None:
        return head.matrix.size
    sizes = yield from _probe_sizes(pair, limits)
    return max(sizes, default=MatrixSize() if head.load.names else None)


def find_or_create_matrix(pair: PairKey, limits: MatrixLimits) -> Rounds[Matrix]:
    """Return the record of the matrix of an attribute-value pair; create the record if there is none.

    The matrix is the table of cells that stores the channels and entries with this pair. The record is stored in its
    head node, cell (0,0). A new record (Gao & Steenkiste §IV.C.5) contains the size that other cells have stored. If
    no other cell has stored a size, the new matrix has one cell. The maximum matrix size in ``limits`` determines which
    other cells are asked.

    This is a generator: it yields the commands of each round, and the caller sends it the cells' answers.
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
    """Return the newest matrix size: ``size``, or a newer one in ``answers``.

    Answers from closed cells are ignored.
    """
    sizes = [answer.member.size for answer in answers if answer.member and not answer.is_in(CellState.CLOSED)]
    return max([size, *sizes])
