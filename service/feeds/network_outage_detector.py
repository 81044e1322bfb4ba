"""Detects outages of a node's own network, so that publishers are not blamed for polls that fail during an outage.

An outage is assumed if several hosts begin to fail in succession and no host responds in between. A failure that an
outage may have caused is not reported until another poll gets a response. If none of the failing hosts has ever
responded to this node, the hosts themselves may be down. In this case an outage is assumed for at most an hour.
"""

from collections import deque
from collections.abc import Iterator

from cachetools import FIFOCache

from service.errors import AddressRefused, HostNotFound, PortRefused, TlsFailed, Unreachable
from service.feeds.canonical_urls import host_of
from service.model import Channel, PollResult

OUTAGE_HOSTS = 3
"""How many hosts must begin to fail in succession, without a response from any host in between, for an outage to be
assumed."""
ATTRIBUTION_TIMEOUT_S = 600.0
"""Maximum time for which a failure is held back while an outage is possible. After this time, the failure is attributed
to the publisher."""

UNCONFIRMED_OUTAGE_S = 3_600.0
"""Maximum time for which an outage is assumed if none of the failing hosts has ever responded to this node."""

_MAX_FAILING_HOSTS = 10_000
_MAX_RESPONDING_HOSTS = 100_000

# Errors that an outage of our network, a resolver, a wrong clock or a captive portal causes with any publisher.
_AMBIGUOUS_OUTCOMES = frozenset(
    {HostNotFound.code, Unreachable.code, TlsFailed.code, AddressRefused.code, PortRefused.code}
)


class NetworkOutageDetector:
    """Detects outages of a node's network from the results of its polls.

    The results must be passed in the order in which the polls end.
    """

    def __init__(self) -> None:
        self._pending: deque[tuple[Channel, PollResult]] = deque()
        self._failing_hosts: FIFOCache[str, None] = FIFOCache(_MAX_FAILING_HOSTS)
        self._responding_hosts: FIFOCache[str, None] = FIFOCache(_MAX_RESPONDING_HOSTS)
        """Hosts whose last poll got a response."""
        self._newly_failing: set[str] = set()
        self._has_one_responded = False
        """Whether one of the newly failing hosts has responded before."""
        self.is_offline = False
        """Whether this node's network is down."""
        self._offline_since_s = 0.0
        self._recovered_s = float("-inf")

    def attribute(self, channel: Channel, result: PollResult) -> Iterator[tuple[Channel, PollResult]]:
        """Record the ``result`` of a poll of ``channel``; yield results that were not caused by this node's network.

        The results are yielded as pairs (channel, result). A failure that may be due to an outage of this node's
        network is held back. A later call yields it, after another poll has got a response or after a timeout.
        Failures during an outage are never yielded.

        The caller must exhaust this generator.
        """
        if result.outcome in _AMBIGUOUS_OUTCOMES:
            yield from self.expire(result.at_s)
            self._on_failure(channel, result)
            return
        if self.is_offline:
            self.is_offline, self._recovered_s = False, result.at_s
        host = host_of(channel.url)
        self._failing_hosts.pop(host, None)
        self._responding_hosts[host] = None
        self._newly_failing.clear()
        self._has_one_responded = False
        while self._pending:
            yield self._pending.popleft()
        yield channel, result

    def expire(self, now_s: float) -> Iterator[tuple[Channel, PollResult]]:
        """Yield the failures that have been held back for too long, as pairs (channel, result).

        A failure is held back while a network outage may have caused it, but for at most ``ATTRIBUTION_TIMEOUT_S``
        after the poll. Each failure is yielded only once. ``now_s`` is the current Unix time.
        """
        while self._pending and not 0 <= now_s - self._pending[0][1].at_s < ATTRIBUTION_TIMEOUT_S:
            yield self._pending.popleft()

    def _on_failure(self, channel: Channel, result: PollResult) -> None:
        host = host_of(channel.url)
        if host not in self._failing_hosts:
            self._newly_failing.add(host)
            self._failing_hosts[host] = None
        if host in self._responding_hosts:
            del self._responding_hosts[host]
            self._has_one_responded = True
        is_past = not 0 <= result.at_s - self._offline_since_s < UNCONFIRMED_OUTAGE_S
        if self.is_offline and not self._has_one_responded and is_past:
            self.is_offline = False
            self._newly_failing.clear()
        if len(self._newly_failing) >= OUTAGE_HOSTS:
            if not self.is_offline:
                self.is_offline, self._offline_since_s = True, result.at_s
            self._pending.clear()
        # A poll that began before the outage ended could only fail.
        elif not self.is_offline and result.at_s - result.took_s >= self._recovered_s:
            self._pending.append((channel, result))
