"""Processes that share partitions by leases: each is served by one at most, and none is lost."""

import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bots.cluster.partitions import Partitions, PartitionState

COUNT = 7
TTL = 3
PROCESSES = st.sampled_from("abcd")


class Leases:
    """What ``spread_beat`` and ``spread_leave`` do in the store, on a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0
        self.until: dict[str, int] = {}
        self.holders: dict[int, str] = {}

    def lives(self, name: str) -> bool:
        return self.until.get(name, -1) >= self.now

    def beat(self, name: str, back: frozenset[int]) -> tuple[frozenset[int], int]:
        self.holders = {n: who for n, who in self.holders.items() if not (n in back and who == name)}
        self.until[name] = self.now + TTL
        most = math.ceil(COUNT / sum(map(self.lives, self.until)))
        mine = {number for number, who in self.holders.items() if who == name}
        for number in range(COUNT):
            if len(mine) < most and number not in self.holders:
                self.holders[number] = name
                mine.add(number)
        return frozenset(mine), most

    def leave(self, name: str) -> None:
        self.until.pop(name, None)
        self.holders = {number: who for number, who in self.holders.items() if who != name}


class Processes(RuleBasedStateMachine):
    """Any of four processes may beat, finish draining, lose its session, be stopped for long, or die."""

    def __init__(self) -> None:
        super().__init__()
        self.leases = Leases()
        self.partitions: dict[str, Partitions] = {}
        self.working: dict[str, set[int]] = {}
        """What each process has under way, as long as it runs."""

    def become(self, name: str, partitions: Partitions) -> None:
        self.partitions[name] = partitions
        self.working.setdefault(name, set()).update(partitions.in_state(PartitionState.SERVED))

    @rule(name=PROCESSES, reply_is_lost=st.booleans())
    def beat(self, name: str, *, reply_is_lost: bool) -> None:
        own = self.partitions.get(name, Partitions())
        returned = own.in_state(PartitionState.DRAINED)
        assert not returned & self.working.get(name, set()), "what is given back is finished"
        leased, most = self.leases.beat(name, returned)
        if not reply_is_lost:
            self.become(name, own.after_heartbeat(leased, most, returned))
            assert self.partitions[name].in_state(PartitionState.SERVED) <= leased
            assert len(self.partitions[name].in_state(PartitionState.SERVED)) <= most

    @rule(name=PROCESSES)
    def finish_draining(self, name: str) -> None:
        own = self.partitions.get(name, Partitions())
        draining = own.in_state(PartitionState.DRAINING)
        self.working.setdefault(name, set()).difference_update(draining)
        self.partitions[name] = own.after_draining(draining)

    @rule(name=PROCESSES)
    def lose_the_session(self, name: str) -> None:
        if name in self.partitions:
            self.leases.leave(name)
            self.become(name, self.partitions[name].after_release())

    @rule(name=PROCESSES)
    def die(self, name: str) -> None:
        self.partitions.pop(name, None)
        self.working.pop(name, None)

    @precondition(lambda self: self.leases.until)
    @rule(beats=st.integers(1, 2 * TTL))
    def wait(self, beats: int) -> None:
        self.leases.now += beats

    @rule()
    def bury(self) -> None:
        for name in [name for name in self.leases.until if not self.leases.lives(name)]:
            self.leases.leave(name)

    @invariant()
    def at_most_one_with_a_lease_serves_a_partition(self) -> None:
        alive = [own for name, own in self.partitions.items() if self.leases.lives(name)]
        served = [number for own in alive for number in own.in_state(PartitionState.SERVED)]
        assert len(served) == len(set(served))

    def teardown(self) -> None:
        """Once all beat and finish, every partition is served, by a fair share each."""
        self.wait(2 * TTL)
        for _ in range(8):
            for name in "abcd":
                self.beat(name, reply_is_lost=False)
                self.finish_draining(name)
            self.bury()
        shares = [self.partitions[name].in_state(PartitionState.SERVED) for name in "abcd"]
        assert sorted(number for own in shares for number in own) == list(range(COUNT))
        assert max(map(len, shares)) <= math.ceil(COUNT / 4)


TestProcesses = Processes.TestCase
TestProcesses.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
