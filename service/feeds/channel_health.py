"""What a channel's polls say against it, and when that is enough to tell its subscribers. Pure.

Each poll ends in a *charge*; charges that repeat become *evidence*, which the store keeps with the
channel. A verdict needs more than one node and more than a moment: a channel is never given up
because of one node's network, one bad day, or a publisher who asks for patience.

When several hosts that answered a moment ago fail one after the other and none answers in between, the fault is our own
network's: a failure is charged only when another poll has been answered since.
"""

from collections import deque
from collections.abc import Iterator
from typing import Literal

import msgspec
from cachetools import FIFOCache

from service.errors import AddressRefused, BadStatus, HostNotFound, ParseKilled, TlsFailed, Unreachable
from service.feeds.urls import host_of
from service.model import Channel, NodeId, Notice, PollResult

DAY_S = 86_400.0
MIN_OBSERVERS = 2
"""Nodes that must have seen it, if so many poll the channel."""
PERMANENT_POLLS = 3
PERMANENT_AFTER_S = DAY_S
"""A permanent redirect, or a 410, is believed after so many polls in a row over so long."""
DEAD_AFTER_S = 30 * DAY_S
DEAD_POLLS = 30
"""Any other failure is for good after so long; a fleet that was down itself has not seen it so often."""
QUARANTINE_POLLS = 3

HEALTHY = ""
GONE = "gone"
FAILING = "failing"
PARSER_KILLED = "deadly"
BUSY = "busy"
MOVED_PREFIX = "moved:"
"""Followed by the URL that a good poll was redirected to for good."""

_OK = frozenset({"new", "unchanged"})
_GONE_STATUS = 410
_BUSY_STATUSES = frozenset({429, 503})


class Evidence(msgspec.Struct, frozen=True):
    """One charge, by the polls in a row that made it. Times are those of polls (Unix s).

    Polls of busy publishers count for nothing and interrupt nothing.
    """

    charge: str
    first_s: float
    last_s: float
    polls: int
    nodes: tuple[NodeId, ...]


class ChannelHealth(msgspec.Struct, frozen=True):
    """A channel after a poll that made ``charge``.

    ``condition`` is what its subscribers were told last; ``refusals`` how often in a row it was busy.
    """

    charge: str
    condition: str
    refusals: int = 0
    evidence: Evidence | None = None


class PollReport(msgspec.Struct, frozen=True):
    """How a poll ended, for the store. ``charge`` is None while it may have been our own network.

    A report that is made ``again`` brings the charge that the first one lacked.
    """

    result: PollResult
    charge: str | None
    again: bool = False


def symptom_of(url: str, result: PollResult, permanent_url: str = "") -> str:
    """Return what a poll of ``url`` says against the channel.

    ``permanent_url`` (canonical) is where nothing but permanent redirects led; a page's selector stays with it.
    """
    if result.outcome in _OK:
        page, mark, selector = url.partition("#")
        return HEALTHY if permanent_url in {"", page} else f"{MOVED_PREFIX}{permanent_url}{mark}{selector}"
    if result.outcome == ParseKilled.code:
        return PARSER_KILLED
    if result.outcome == BadStatus.code and result.status in _BUSY_STATUSES:
        return BUSY
    return GONE if result.outcome == BadStatus.code and result.status == _GONE_STATUS else FAILING


def is_healthy(charge: str) -> bool:
    """Say whether the publisher answered with what we can use."""
    return charge == HEALTHY or charge.startswith(MOVED_PREFIX)


def diagnose(case: ChannelHealth, pollers: int, why: str) -> Notice | None:
    """Return what subscribers have to be told, if the case is strong enough and they were not told yet.

    ``pollers`` is how many nodes poll the channel; ``why`` says in one sentence how the last poll ended.
    """
    if case.condition and is_healthy(case.charge):
        return Notice("back")
    evidence = case.evidence
    if evidence is None or not _is_proved(evidence, pollers):
        return None
    if evidence.charge.startswith(MOVED_PREFIX):
        return Notice("moved", evidence.charge.removeprefix(MOVED_PREFIX))
    kind: Literal["dead", "quarantined"] = "quarantined" if evidence.charge == PARSER_KILLED else "dead"
    return None if kind == case.condition else Notice(kind, why)


def recheck_delay_s(case: ChannelHealth) -> float:
    """Return how long to leave a channel alone that was given up and still is not well (s)."""
    return DAY_S if case.condition and not is_healthy(case.charge) else 0.0


def _is_proved(evidence: Evidence, pollers: int) -> bool:
    if evidence.charge == PARSER_KILLED:
        return evidence.polls >= QUARANTINE_POLLS
    if len(evidence.nodes) < min(MIN_OBSERVERS, pollers):
        return False
    polls, over_s = (DEAD_POLLS, DEAD_AFTER_S) if evidence.charge == FAILING else (PERMANENT_POLLS, PERMANENT_AFTER_S)
    return evidence.polls >= polls and evidence.last_s - evidence.first_s >= over_s


OUTAGE_HOSTS = 3
"""So many hosts that worked and fail now, with no answer in between, are our own outage."""
ATTRIBUTION_TIMEOUT_S = 600.0
"""How long a failure waits for another poll to tell; then it is the publisher's."""

_HOSTS_KNOWN = 10_000

# What a network, a resolver, a clock, or a portal of ours can make of any publisher.
_DOUBTFUL = frozenset({HostNotFound.code, Unreachable.code, TlsFailed.code, AddressRefused.code})


class OutageDetector:
    """One node's doubts about its own network."""

    def __init__(self) -> None:
        """Trust the network until it fails."""
        self._waiting: deque[tuple[Channel, PollResult]] = deque()
        self._failing: FIFOCache[str, None] = FIFOCache(_HOSTS_KNOWN)
        self._doubted: set[str] = set()
        self._out = False
        self._back_s = float("-inf")

    @property
    def is_ours(self) -> bool:
        """Whether nobody can be reached from here."""
        return self._out

    def settle(self, channel: Channel, result: PollResult) -> Iterator[tuple[Channel, PollResult]]:
        """Take in how a poll ended; yield earlier ones, and this one, if it is clear by now whose fault they are.

        What our own outage spoiled is never yielded. Polls are told in the order in which they end.
        """
        if result.outcome in _DOUBTFUL:
            yield from self.overdue(result.at_s)
            self._failed(channel, result)
            return
        if self._out:
            self._out, self._back_s = False, result.at_s
        self._failing.pop(host_of(channel.url), None)
        self._doubted.clear()
        while self._waiting:
            yield self._waiting.popleft()
        yield channel, result

    def overdue(self, now_s: float) -> Iterator[tuple[Channel, PollResult]]:
        """Yield the failures that have waited long enough (``now_s``: Unix s)."""
        while self._waiting and not 0 <= now_s - self._waiting[0][1].at_s < ATTRIBUTION_TIMEOUT_S:
            yield self._waiting.popleft()

    def _failed(self, channel: Channel, result: PollResult) -> None:
        host = host_of(channel.url)
        if host not in self._failing:
            self._doubted.add(host)
            self._failing[host] = None
        if len(self._doubted) >= OUTAGE_HOSTS:
            self._out = True
            self._waiting.clear()
        # A poll that began before the outage ended could only fail.
        elif not self._out and result.at_s - result.took_s >= self._back_s:
            self._waiting.append((channel, result))
