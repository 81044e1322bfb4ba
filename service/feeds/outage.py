"""Whose fault it is when publishers cannot be reached: theirs, or our own network's. Pure.

When several hosts that answered a moment ago fail one after the other and none answers in between,
the fault is ours. So a failure waits until another poll tells: an answer from anybody acquits our
network, more failures convict it. Hosts that failed before prove nothing by failing again.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator

from service.errors import AddressRefused, HostNotFound, TlsFailed, Unreachable
from service.feeds.urls import host_of
from service.model import Channel, PollResult

HOSTS = 3
"""So many hosts that worked and fail now, with no answer in between, are our own outage."""
PATIENCE_S = 600.0
"""How long a failure waits for another poll to tell; then it is the publisher's."""

_HOSTS_KNOWN = 10_000

# What a network, a resolver, a clock, or a portal of ours can make of any publisher.
_DOUBTFUL = frozenset({HostNotFound.code, Unreachable.code, TlsFailed.code, AddressRefused.code})


class Outage:
    """One node's doubts about its own network."""

    def __init__(self) -> None:
        """Trust the network until it fails."""
        self._waiting: deque[tuple[Channel, PollResult]] = deque()
        self._failing: OrderedDict[str, None] = OrderedDict()
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
        while self._waiting and not 0 <= now_s - self._waiting[0][1].at_s < PATIENCE_S:
            yield self._waiting.popleft()

    def _failed(self, channel: Channel, result: PollResult) -> None:
        host = host_of(channel.url)
        if host not in self._failing:
            self._doubted.add(host)
            self._failing[host] = None
            if len(self._failing) > _HOSTS_KNOWN:
                self._failing.popitem(last=False)
        if len(self._doubted) >= HOSTS:
            self._out = True
            self._waiting.clear()
        # A poll that began before the outage ended could only fail.
        elif not self._out and result.at_s - result.took_s >= self._back_s:
            self._waiting.append((channel, result))
