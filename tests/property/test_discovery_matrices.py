"""Invariants of matrices: a registered name is found, whatever runs concurrently, and nothing else is.

A state machine registers, refreshes, queries, resizes and loses cells, while the commands of all protocols arrive in
any order and any of them may be abandoned.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from service.discovery.cell_rounds import find_or_create_matrix
from service.discovery.matrix import (
    SECOND_ROWS,
    CellAddress,
    Matrix,
    MatrixLimits,
    MatrixSize,
    RemovedPart,
    ResizeKind,
    ResizeRequest,
    after_request,
    head_address,
    home_partition,
)
from service.discovery.matrix_cell import CellAnswer, Command, UpdateMatrix
from service.discovery.matrix_registration import register, withdraw
from service.discovery.matrix_resizing import reconcile_matrix
from service.discovery.matrix_search import PairClause, PairQuery, SearchOutcome, search
from service.discovery.postings import Posting, name_key
from tests.support.memory_cells import MemoryCells

PAIRS = ("a=1", "b=2", "c=3")
NAMES = ("n0", "n1", "n2", "n3", "n4", "n5")
LIMITS = MatrixLimits(partitions=8, replicas=4)
ALL = 100
TTL_S = 1000


class NameRecord(msgspec.Struct, frozen=True):
    """A version of a name: it has the AV-pairs ``pairs``, and its postings expire at ``expires_s``, which grows."""

    name: str
    version: int
    pairs: frozenset[str]
    expires_s: int

    def posting(self, pair: str) -> Posting:
        """Return the posting in the matrix of a pair: a withdrawal if the name does not have the pair."""
        return Posting(name_key(self.name), int(pair in self.pairs), self.expires_s)


class RunningProtocol:
    """A protocol in progress, whose commands are carried out one by one, in any order."""

    def __init__(self, kind: str, protocol: Any, about: Any) -> None:
        self.kind, self.protocol, self.about = kind, protocol, about
        self.over = False
        self.result: Any = None
        self._answers: list[CellAnswer | None] = []
        self._commands: Sequence[Command] = ()
        self._send(None)

    def step(self, cells: MemoryCells, which: int) -> None:
        """Carry out one of the round's commands; after the last one, continue with the next round."""
        left = [place for place, answer in enumerate(self._answers) if answer is None]
        at = left[which % len(left)]
        self._answers[at] = cells.carry_out(self._commands[at])
        if len(left) == 1:
            self._send(self._answers)

    def _send(self, answers: Any) -> None:
        try:
            self._commands = self.protocol.send(answers)
            assert self._commands, "a round asks for something"
            self._answers = [None] * len(self._commands)
        except StopIteration as stopped:
            self.over, self.result = True, stopped.value


class Matrices(RuleBasedStateMachine):
    """A store, the names registered in it, and the running protocols."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = MemoryCells()
        self.names = {name_key(name): name for name in NAMES}
        self.expiries = dict.fromkeys(NAMES, 0)
        self.versions = dict.fromkeys(NAMES, 0)
        self.registered: dict[str, NameRecord] = {}
        """Of each name the record that is registered completely; while it changes, the one before."""
        self.written: dict[tuple[str, int], NameRecord] = {}
        self.unfinished: set[str] = set()
        """Names of which a registration stopped in the middle: either version may be found."""
        self.known: dict[str, MatrixSize] = {}
        self.running: list[RunningProtocol] = []
        self.lost_since_upkeep: set[str] = set()
        self.lost_heads: set[str] = set()
        self.oldest: dict[str, int] = {}
        """Of each name the oldest version of which pairs may be found."""
        self.waiting: dict[str, NameRecord] = {}
        """Records that were withdrawn from a matrix whose head is lost; upkeep completes their withdrawal."""

    @initialize(wider=st.integers(0, 3), taller=st.integers(0, 1))
    def begin(self, *, wider: int, taller: int) -> None:
        """Start with matrices of some size that contain all names."""
        for pair in PAIRS:
            for kind in [ResizeKind.INC_P] * wider + [ResizeKind.INC_R] * taller:
                self.request(pair=pair, kind=kind, partition=0, replica=0, last=True, row=5)
                self.finish()
                self.settle(pair)
        for name in NAMES:
            self.register(name=name, pairs=set(PAIRS), remember=False)
        self.finish()

    # what people and publishers do

    @rule(name=st.sampled_from(NAMES), pairs=st.sets(st.sampled_from(PAIRS)), remember=st.booleans())
    def register(self, *, name: str, pairs: set[str], remember: bool) -> None:
        """Register a name, or its next version, with all pairs that it has or had."""
        if any(running.kind == "register" and running.about[0].name == name for running in self.running):
            return
        self.versions[name] += 1
        record = NameRecord(name, self.versions[name], frozenset(pairs), self._next_expiry(name))
        self.written[name, record.version] = record
        if name in self.registered:
            before = self.registered[name]
            self.registered[name] = NameRecord(name, before.version, before.pairs & record.pairs, before.expires_s)
        for pair in PAIRS:
            protocol = (register if pair in pairs else withdraw)(
                pair, record.posting(pair), self.known.get(pair) if remember else None
            )
            self._start("register", protocol, (record, pair))

    @rule(name=st.sampled_from(NAMES), remember=st.booleans())
    def refresh(self, *, name: str, remember: bool) -> None:
        """Register the same version again."""
        record = self.registered.get(name)
        if record is None or name in self.unfinished or any(r.about[0].name == name for r in self._of("register")):
            return
        again = NameRecord(name, record.version, record.pairs, self._next_expiry(name))
        for pair in record.pairs:
            known = self.known.get(pair) if remember else None
            self._start("refresh", register(pair, again.posting(pair), known), (again, pair))

    @rule(pair=st.sampled_from(PAIRS), name=st.sampled_from(NAMES), known=st.sampled_from(("last", "first", None)))
    def refresh_alone(self, *, pair: str, name: str, known: str | None) -> None:
        """A refresh without concurrent protocols puts a name where it is, or into its home partition."""
        record = self.registered.get(name)
        if record is None or pair not in record.pairs or name in self.unfinished or pair in self.lost_since_upkeep:
            return
        if any(running.about == pair for running in self._of("upkeep")) or self._matrix(pair).leaving:
            return
        again = NameRecord(name, record.version, record.pairs, self._next_expiry(name))
        before = self._partitions_of(pair, name)
        size = self.known.get(pair) if known == "last" else MatrixSize() if known else None
        self.cells.run(register(pair, again.posting(pair), size))
        its_home = home_partition(name_key(name), self._matrix(pair).size.partitions)
        assert self._partitions_of(pair, name) - before <= {its_home}

    @rule(pairs=st.sets(st.sampled_from(PAIRS), min_size=1), draw=st.integers(0, 2**32 - 1), remember=st.booleans())
    def query(self, *, pairs: set[str], draw: int, remember: bool) -> None:
        """Query all names that have some pairs."""
        known = self.known if remember else {}
        started = dict(self.oldest)
        self._start(
            "query",
            search(query_for(pairs), draw, self.cells.now_s, known, {}),
            (pairs, started, set(self._findable(pairs))),
        )

    # what cells and workers do

    @rule(
        pair=st.sampled_from(PAIRS),
        kind=st.sampled_from(ResizeKind),
        partition=st.integers(0, 7),
        replica=st.integers(0, 3),
        last=st.booleans(),
        row=st.sampled_from(SECOND_ROWS),
    )
    def request(self, *, pair: str, kind: ResizeKind, partition: int, replica: int, last: bool, row: int) -> None:
        """A cell requests growth or shrinking of its matrix."""
        if pair in self.lost_heads:
            return
        matrix = self.cells.run(find_or_create_matrix(pair, LIMITS))
        at = CellAddress(pair, partition, replica)
        if last:
            at = CellAddress(pair, matrix.size.partitions - 1, matrix.size.rows[-1])
        rows: tuple[int, ...] = (row, row + 40) if matrix.size.replicas == 1 else (row + 9,)
        rows = tuple(each for each in rows if each not in matrix.size.rows)
        after = after_request(matrix, ResizeRequest(kind, at, rows), LIMITS)
        if after is not matrix:
            self.cells.carry_out(UpdateMatrix(head_address(pair), matrix, after))
            self._start("upkeep", reconcile_matrix(pair, LIMITS, page=2), pair)

    @rule(pair=st.sampled_from(PAIRS))
    def reconcile_once(self, pair: str) -> None:
        """Run one pass of resizing."""
        self._start("upkeep", reconcile_matrix(pair, LIMITS, page=2), pair)

    @rule(pair=st.sampled_from(PAIRS))
    def settle(self, pair: str) -> None:
        """Run passes of resizing until the matrix is settled."""
        for _ in range(12):
            if self.cells.run(reconcile_matrix(pair, LIMITS, page=2)) is not None:
                break
        else:
            raise AssertionError("the matrix never settles")
        self.lost_since_upkeep.discard(pair)
        self.lost_heads.discard(pair)
        for record in list(self.waiting.values()):
            self._note_withdrawal(record)

    @rule(pair=st.sampled_from(PAIRS), which=st.integers(0, 31), head=st.booleans())
    def lose(self, *, pair: str, which: int, head: bool) -> None:
        """A cell loses all content; a second one only after the first has been restored."""
        places = [place for place in self.cells.places_of(pair) if place.partition or place.replica or head]
        if not places or pair in self.lost_since_upkeep:
            return
        self.cells.lose(head_address(pair) if head else places[which % len(places)])
        self.lost_since_upkeep.add(pair)
        if head:
            self.lost_heads.add(pair)
        self._prune()
        for name, record in list(self.registered.items()):
            if pair in record.pairs and not self._survives(pair, record):
                del self.registered[name]
        for running in self._of("register", "refresh"):
            if running.about[1] == pair:
                name, version = running.about[0].name, running.about[0].version
                self.oldest[name] = min(version, self.oldest.get(name, version))
                running.about = (running.about[0], pair, "hit")

    @rule(after_s=st.integers(1, TTL_S))
    def wait(self, after_s: int) -> None:
        """Time passes, and names expire."""
        self.cells.now_s += after_s
        for name, record in list(self.registered.items()):
            if record.expires_s <= self.cells.now_s:
                del self.registered[name]

    # how it goes on

    @precondition(lambda self: self.running)
    @rule(steps=st.lists(st.tuples(st.integers(0, 31), st.integers(0, 31)), min_size=1, max_size=40))
    def run_steps(self, steps: list[tuple[int, int]]) -> None:
        """Some commands arrive."""
        for which, command in steps:
            if self.running:
                self._step(self.running[which % len(self.running)], command)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 31))
    def crash(self, which: int) -> None:
        """The process that runs a protocol fails."""
        running = self.running.pop(which % len(self.running))
        if running.kind == "register":
            self.unfinished.add(running.about[0].name)
            self.registered.pop(running.about[0].name, None)
        if running.kind in {"register", "refresh"}:
            self.running = [other for other in self.running if other.about[0] != running.about[0]]

    @precondition(lambda self: self.running)
    @rule()
    def finish(self) -> None:
        """All running protocols complete."""
        for _ in range(20_000):
            if not self.running:
                return
            self._step(self.running[0], 0)
        raise AssertionError("a dialogue never ends")

    @invariant()
    def every_name_is_found(self) -> None:
        """A query without concurrent protocols, of any pairs and with any cached sizes, is exact."""
        self._prune()
        for pairs in (set(PAIRS[:1]), set(PAIRS[1:])):
            for known in ({}, self.known):
                wanted = set(self._findable(pairs))
                found = self.cells.run(search(query_for(pairs), len(self.running), self.cells.now_s, known, {}))
                self._check(found, pairs, wanted, self.oldest)

    def teardown(self) -> None:
        self.finish()
        for pair in PAIRS:
            self.settle(pair)
        self.every_name_is_found()

    # the rest is bookkeeping

    def _start(self, kind: str, protocol: Any, about: Any) -> None:
        running = RunningProtocol(kind, protocol, about)
        self._end(running) if running.over else self.running.append(running)

    def _step(self, running: RunningProtocol, command: int) -> None:
        running.step(self.cells, command)
        if running.over:
            self.running.remove(running)
            self._end(running)
        self._prune()

    def _prune(self) -> None:
        """Names that were unregistered for a moment need not be found by concurrent queries."""
        for running in self._of("query"):
            pairs, started, wanted = running.about
            running.about = (pairs, started, wanted & set(self._findable(pairs)))

    def _end(self, running: RunningProtocol) -> None:
        if running.kind == "query":
            pairs, started, wanted = running.about
            self._check(running.result, pairs, wanted & set(self._findable(pairs)), started)
            self.known |= running.result.sizes
        elif running.kind in {"register", "refresh"}:
            record, pair = running.about[:2]
            self.known[pair] = running.result
            if not any(r.about[0] == record for r in self._of(running.kind)):
                self._complete(record)

    def _complete(self, record: NameRecord) -> None:
        if record.version != self.versions[record.name] or record.expires_s <= self.cells.now_s:
            return
        self.unfinished.discard(record.name)
        self.registered.pop(record.name, None)
        if all(self._survives(pair, record) for pair in record.pairs):
            self.registered[record.name] = record
        is_hit = any(len(r.about) > 2 for r in self._of("register", "refresh") if r.about[0].name == record.name)
        if not is_hit:
            self._note_withdrawal(record)

    def _note_withdrawal(self, record: NameRecord) -> None:
        """Pairs of earlier versions are no longer found.

        While a head is lost, a process that does not know the other replicas cannot withdraw a name from them.
        """
        if self.lost_heads <= record.pairs:
            self.oldest[record.name] = max(record.version, self.oldest.get(record.name, 0))
            self.waiting.pop(record.name, None)
        else:
            self.waiting[record.name] = record

    def _next_expiry(self, name: str) -> int:
        self.expiries[name] = max(self.expiries[name] + 1, self.cells.now_s + TTL_S)
        return self.expiries[name]

    def _matrix(self, pair: str) -> Matrix:
        return self.cells.matrices.get(head_address(pair), Matrix())

    def _of(self, *kinds: str) -> list[RunningProtocol]:
        return [running for running in self.running if running.kind in kinds]

    def _partitions_of(self, pair: str, name: str) -> set[int]:
        live = {at: held.get(name_key(name)) for at, held in self.cells.postings.items() if at.pair == pair}
        return {
            at.partition
            for at, posting in live.items()
            if posting and posting.weight and posting.expires_s > self.cells.now_s
        }

    def _findable(self, pairs: set[str]) -> list[str]:
        if pairs & self.lost_heads:
            return []
        return [name for name, record in self.registered.items() if pairs <= record.pairs]

    def _survives(self, pair: str, record: NameRecord) -> bool:
        """Return whether a remaining cell has the name: only a refresh repairs losses."""
        matrix = self.cells.matrices.get(head_address(pair))
        for at, held in self.cells.postings.items():
            member = self.cells.members.get(at)
            posting = held.get(name_key(record.name))
            if at.pair != pair or posting is None or (member is None and at != head_address(pair)):
                continue
            leaves = matrix and matrix.leaving is RemovedPart.REPLICA and at.replica == matrix.size.rows[-1]
            if posting.expires_s >= record.expires_s and posting.weight and not leaves:
                return True
        return False

    def _check(self, found: SearchOutcome, pairs: set[str], wanted: set[str], started: dict[str, int]) -> None:
        assert found.complete
        names = [self.names[key] for key in found.names.tolist()]
        assert len(names) == len(set(names))
        assert wanted <= set(names), f"{wanted - set(names)} not found by {pairs}"
        for name in names:
            versions = range(started.get(name, 0), self.versions[name] + 1)
            later = [self.written[name, version].pairs for version in versions if (name, version) in self.written]
            assert pairs <= frozenset().union(*later), f"{name} does not match {pairs}"


def query_for(pairs: set[str]) -> PairQuery:
    """Return the query for all names that have these pairs."""
    return PairQuery([PairClause(((pair, 1.0),)) for pair in sorted(pairs)], (), ALL, lambda *_: 1.0)


PHASES = (Phase.reuse, Phase.generate, Phase.shrink)
TestMatrices = Matrices.TestCase
TestMatrices.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck)
)
