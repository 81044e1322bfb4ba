"""When nobody can be reached the fault is ours, and nobody is charged with it; when somebody can, it is theirs."""

import pytest

from service.errors import AddressRefused, BadStatus, HostNotFound, TlsFailed, Unreachable
from service.feeds.outage_detector import ATTRIBUTION_TIMEOUT_S, OUTAGE_HOSTS, OutageDetector
from service.model import Channel, PollResult

NODE = "a" * 40


class Polls:
    """A node's polls, one a second, and who was charged."""

    def __init__(self) -> None:
        self.outage = OutageDetector()
        self.now_s = 1_000.0
        self.settled: list[str] = []

    def end(self, host: str, outcome: str = Unreachable.code, *, took_s: float = 0.5) -> None:
        self.now_s += 1.0
        channel = Channel(host, f"https://{host}.example/feed")
        cases = self.outage.attribute(channel, PollResult(NODE, self.now_s, outcome, took_s=took_s))
        self.settled += [channel.id for channel, _ in cases]

    def overdue(self, after_s: float) -> list[str]:
        return [channel.id for channel, _ in self.outage.expire(self.now_s + after_s)]


@pytest.fixture
def polls() -> Polls:
    return Polls()


def test_an_answer_from_anybody_settles_whose_fault_the_failures_before_it_were(polls: Polls) -> None:
    polls.end("a")
    polls.end("b", HostNotFound.code)
    assert polls.settled == []
    polls.end("c", "unchanged")
    assert polls.settled == ["a", "b", "c"]


@pytest.mark.parametrize("outcome", [HostNotFound.code, Unreachable.code, TlsFailed.code, AddressRefused.code])
def test_when_several_hosts_fail_and_none_answers_nobody_is_charged(polls: Polls, outcome: str) -> None:
    polls.end("a", "unchanged")
    for host in "bcdefghb":
        polls.end(host, outcome)
    out = polls.outage.is_offline
    polls.end("a", "unchanged")
    assert (out, polls.outage.is_offline) == (True, False)
    assert polls.settled == ["a", "a"]
    assert polls.overdue(2 * ATTRIBUTION_TIMEOUT_S) == []


def test_a_failure_of_the_publishers_own_is_settled_at_once(polls: Polls) -> None:
    for host in "abcdef":
        polls.end(host, BadStatus.code)
    assert polls.settled == list("abcdef")
    assert not polls.outage.is_offline


def test_many_failures_of_one_host_are_that_hosts(polls: Polls) -> None:
    for _ in range(9):
        polls.end("a")
    assert not polls.outage.is_offline
    assert polls.overdue(ATTRIBUTION_TIMEOUT_S) == ["a"] * 9


def test_hosts_that_are_broken_for_long_are_no_outage_however_often_they_fail_in_a_row(polls: Polls) -> None:
    """They may always be polled one after the other, in the same order."""
    for round_ in range(5):
        for host in "abcd":
            polls.end(host)
        polls.end("e", "unchanged")
        if round_:
            assert polls.settled[-5:] == list("abcde")


def test_who_has_nobody_else_to_ask_charges_after_a_while(polls: Polls) -> None:
    polls.end("a")
    assert polls.overdue(ATTRIBUTION_TIMEOUT_S - 1) == []
    assert polls.overdue(ATTRIBUTION_TIMEOUT_S) == ["a"]
    assert polls.overdue(ATTRIBUTION_TIMEOUT_S) == []


def test_a_poll_that_began_before_the_outage_ended_is_not_charged_although_it_failed_later(polls: Polls) -> None:
    for number in range(OUTAGE_HOSTS):
        polls.end(f"out{number}")
    polls.end("a", "unchanged")
    polls.end("b", took_s=30.0)
    polls.end("c", took_s=0.5)
    polls.end("a", "unchanged")
    assert polls.settled == ["a", "c", "a"]


def test_a_clock_that_was_set_back_keeps_no_failure_waiting_for_ever(polls: Polls) -> None:
    polls.end("a")
    assert polls.overdue(-86_400.0) == ["a"]
