"""Attribution of failures to publishers or to an outage of this node's network."""

import pytest

from service.errors import AddressRefused, BadStatus, HostNotFound, TlsFailed, Unreachable
from service.feeds.network_outage_detector import (
    ATTRIBUTION_TIMEOUT_S,
    OUTAGE_HOSTS,
    UNCONFIRMED_OUTAGE_S,
    NetworkOutageDetector,
)
from service.model import Channel, PollResult

NODE = "a" * 40


class Polls:
    """A node's polls, one per second, and the hosts to which their results are attributed."""

    def __init__(self) -> None:
        self.outage = NetworkOutageDetector()
        self.now_s = 1_000.0
        self.attributed: list[str] = []

    def end(self, host: str, outcome: str = Unreachable.code, *, took_s: float = 0.5) -> None:
        self.now_s += 1.0
        channel = Channel(host, f"https://{host}.example/feed")
        cases = self.outage.attribute(channel, PollResult(NODE, self.now_s, outcome, took_s=took_s))
        self.attributed += [channel.id for channel, _ in cases]

    def overdue(self, after_s: float) -> list[str]:
        return [channel.id for channel, _ in self.outage.expire(self.now_s + after_s)]


@pytest.fixture
def polls() -> Polls:
    return Polls()


def test_a_response_of_any_host_attributes_earlier_failures_to_publishers(polls: Polls) -> None:
    polls.end("a")
    polls.end("b", HostNotFound.code)
    assert polls.attributed == []
    polls.end("c", "unchanged")
    assert polls.attributed == ["a", "b", "c"]


@pytest.mark.parametrize("outcome", [HostNotFound.code, Unreachable.code, TlsFailed.code, AddressRefused.code])
def test_failures_during_an_outage_are_not_attributed(polls: Polls, outcome: str) -> None:
    polls.end("a", "unchanged")
    for host in "bcdefghb":
        polls.end(host, outcome)
    out = polls.outage.is_offline
    polls.end("a", "unchanged")
    assert (out, polls.outage.is_offline) == (True, False)
    assert polls.attributed == ["a", "a"]
    assert polls.overdue(2 * ATTRIBUTION_TIMEOUT_S) == []


def test_an_unambiguous_failure_is_attributed_at_once(polls: Polls) -> None:
    for host in "abcdef":
        polls.end(host, BadStatus.code)
    assert polls.attributed == list("abcdef")
    assert not polls.outage.is_offline


def test_many_failures_of_one_host_are_no_outage(polls: Polls) -> None:
    for _ in range(9):
        polls.end("a")
    assert not polls.outage.is_offline
    assert polls.overdue(ATTRIBUTION_TIMEOUT_S) == ["a"] * 9


def test_hosts_that_failed_before_are_no_outage(polls: Polls) -> None:
    """The hosts may always be polled one after the other, in the same order."""
    for round_ in range(5):
        for host in "abcd":
            polls.end(host)
        polls.end("e", "unchanged")
        if round_:
            assert polls.attributed[-5:] == list("abcde")


@pytest.mark.parametrize("responded", [False, True])
def test_dead_hosts_alone_are_an_outage_for_a_limited_time(polls: Polls, *, responded: bool) -> None:
    if responded:
        polls.end("a", "unchanged")
        polls.attributed.clear()
    for _ in range(3):
        for host in "abc":
            polls.end(host)
    assert polls.outage.is_offline
    polls.now_s += UNCONFIRMED_OUTAGE_S
    for host in "abc":
        polls.end(host)
    assert polls.outage.is_offline is responded
    assert polls.overdue(ATTRIBUTION_TIMEOUT_S) == ([] if responded else ["a", "b", "c"])


def test_failures_of_the_only_host_are_attributed_after_the_timeout(polls: Polls) -> None:
    polls.end("a")
    assert polls.overdue(ATTRIBUTION_TIMEOUT_S - 1) == []
    assert polls.overdue(ATTRIBUTION_TIMEOUT_S) == ["a"]
    assert polls.overdue(ATTRIBUTION_TIMEOUT_S) == []


def test_a_poll_that_began_during_an_outage_is_not_attributed(polls: Polls) -> None:
    for number in range(OUTAGE_HOSTS):
        polls.end(f"out{number}")
    polls.end("a", "unchanged")
    polls.end("b", took_s=30.0)
    polls.end("c", took_s=0.5)
    polls.end("a", "unchanged")
    assert polls.attributed == ["a", "c", "a"]


def test_a_clock_set_back_does_not_hold_failures_back_forever(polls: Polls) -> None:
    polls.end("a")
    assert polls.overdue(-86_400.0) == ["a"]
