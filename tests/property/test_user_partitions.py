"""Processes that share partitions by leases: each partition is served by at most one process, and none is lost."""

import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from bots.cluster.partitions import Partitions, PartitionState

COUNT = 7
TTL = 3
PROCESSES = st.sampled_from("abcd")


class Leases:
    """A model of the scripts ``partitions_heartbeat`` and ``partitions_release``, on a clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0
        self.valid_until: dict[str, int] = {}
        self.holders: dict[int, str] = {}

    def is_alive(self, process: str) -> bool:
        return self.valid_until.get(process, -1) >= self.now

    def heartbeat(self, process: str, returned: frozenset[int]) -> tuple[frozenset[int], int]:
        self.holders = {n: holder for n, holder in self.holders.items() if not (n in returned and holder == process)}
        self.valid_until[process] = self.now + TTL
        fair_share = math.ceil(COUNT / sum(map(self.is_alive, self.valid_until)))
        held = {number for number, holder in self.holders.items() if holder == process}
        for number in range(COUNT):
            if len(held) < fair_share and number not in self.holders:
                self.holders[number] = process
                held.add(number)
        return frozenset(held), fair_share

    def release(self, process: str) -> None:
        self.valid_until.pop(process, None)
        self.holders = {number: holder for number, holder in self.holders.items() if holder != process}


class Processes(RuleBasedStateMachine):
    """Four processes that send heartbeats, finish draining, lose their sessions, stand still, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.leases = Leases()
        self.partitions: dict[str, Partitions] = {}
        self.confirmed_until: dict[str, int] = {}
        """Until when each process knows that its lease is valid: from the last reply that it received."""
        self.unfinished: dict[str, set[int]] = {}
        """Partitions for which a process has unfinished work, as long as the process runs."""

    def change(self, process: str, partitions: Partitions) -> None:
        self.partitions[process] = partitions
        self.unfinished.setdefault(process, set()).update(partitions.in_state(PartitionState.SERVED))

    @rule(process=PROCESSES, is_reply_lost=st.booleans())
    def heartbeat(self, process: str, *, is_reply_lost: bool) -> None:
        partitions = self.partitions.get(process, Partitions())
        returned = partitions.in_state(PartitionState.DRAINED)
        assert not returned & self.unfinished.get(process, set()), "work for returned partitions is finished"
        leased, fair_share = self.leases.heartbeat(process, returned)
        if not is_reply_lost:
            self.confirmed_until[process] = self.leases.now + TTL
            self.change(process, partitions.after_heartbeat(leased, fair_share, returned))
            served = self.partitions[process].in_state(PartitionState.SERVED)
            assert served <= leased
            assert len(served) <= fair_share

    @rule(process=PROCESSES)
    def finish_draining(self, process: str) -> None:
        partitions = self.partitions.get(process, Partitions())
        draining = partitions.in_state(PartitionState.DRAINING)
        self.unfinished.setdefault(process, set()).difference_update(draining)
        self.partitions[process] = partitions.after_draining(draining)

    @rule(process=PROCESSES)
    def lose_session(self, process: str) -> None:
        if process in self.partitions:
            self.leases.release(process)
            self.change(process, self.partitions[process].after_release())

    @rule(process=PROCESSES)
    def fail(self, process: str) -> None:
        self.partitions.pop(process, None)
        self.confirmed_until.pop(process, None)
        self.unfinished.pop(process, None)

    @precondition(lambda self: self.leases.valid_until)
    @rule(duration=st.integers(1, 2 * TTL))
    def wait(self, duration: int) -> None:
        self.leases.now += duration

    @rule()
    def release_failed(self) -> None:
        for process in [each for each in self.leases.valid_until if not self.leases.is_alive(each)]:
            self.leases.release(process)

    @invariant()
    def at_most_one_process_with_a_lease_serves_a_partition(self) -> None:
        """A process whose heartbeats got no reply for the time of a lease serves nothing, whatever the store has."""
        serving = [
            own for process, own in self.partitions.items() if self.confirmed_until.get(process, -1) >= self.leases.now
        ]
        served = [number for own in serving for number in own.in_state(PartitionState.SERVED)]
        assert len(served) == len(set(served))

    def teardown(self) -> None:
        """Once all processes send heartbeats and finish their work, each serves a fair share, and together all."""
        self.wait(2 * TTL)
        for _ in range(8):
            for process in "abcd":
                self.heartbeat(process, is_reply_lost=False)
                self.finish_draining(process)
            self.release_failed()
        shares = [self.partitions[process].in_state(PartitionState.SERVED) for process in "abcd"]
        assert sorted(number for own in shares for number in own) == list(range(COUNT))
        assert max(map(len, shares)) <= math.ceil(COUNT / 4)


TestProcesses = Processes.TestCase
TestProcesses.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)
