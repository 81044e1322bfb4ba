"""Monitor of channels' health on one node: records poll results, and proposes notices to subscribers.

A notice says, for example, that a channel (a feed or page) is dead. After each poll that justifies a notice, the notice
is offered to the channel's owner, the node that stores changes. This node need not store the notice, because every
further poll leads to the same notice until the owner has published it. The notice is therefore not lost if the owner is
busy, outdated or dead.
"""

from collections.abc import Callable
from math import ceil

import structlog

from service.clock import Clock
from service.corona.events import CandidateFound, LimitObserved
from service.corona.messages import Candidate, PollingLimit
from service.corona.polling_limits import LimitReason
from service.errors import StoreUnavailable
from service.feeds.channel_health import PollReport, diagnose, symptom_of
from service.feeds.network_outage_detector import NetworkOutageDetector
from service.model import Channel, ChannelId, Delta, PollResult, Validators
from service.store import Store

_MAX_REPORTS = 1_000

log = structlog.get_logger(__name__)


class ChannelHealthMonitor:
    """Records the results of one node's polls, and proposes notices and polling limits to the channels' owners.

    - A channel's owner is the node that stores its changes.
    - A notice tells the subscribers of a channel, for example, that the channel is dead.
    - A polling limit is a minimum interval between polls of a failing channel.

    ``get_polled`` returns a channel and how many nodes poll it, or None if this node does not poll the channel.
    """

    def __init__(
        self, store: Store, clock: Clock, get_polled: Callable[[ChannelId], tuple[Channel, int] | None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._get_polled = get_polled
        self._outages = NetworkOutageDetector()
        self._reports: list[tuple[ChannelId, PollReport]] = []

    @property
    def is_offline(self) -> bool:
        """Whether this node's own network connection seems to be down."""
        return self._outages.is_offline

    def on_polled(self, channel: Channel, result: PollResult, permanent_url: str) -> None:
        """Record the ``result`` of a poll; ``permanent_url`` is the target of a permanent redirect, or "".

        A failure is not attributed to the publisher if this node's own network may have caused it.
        """
        symptom, was_outage = None, self._outages.is_offline
        for attributed, earlier in self._outages.attribute(channel, result):
            if earlier is result:
                symptom = symptom_of(channel.url, result, permanent_url)
            else:
                self._report_symptom(attributed, earlier)
        self._reports.append((channel.id, PollReport(result, symptom)))
        if self._outages.is_offline is not was_outage:
            log.warning("network outage ended" if was_outage else "network outage began, no publisher is reachable")

    async def record(self) -> list[CandidateFound | LimitObserved]:
        """Store the poll results since the last call; return the resulting proposals to the channels' owners.

        - A :class:`CandidateFound` proposes a new version that contains no changes, but a notice to subscribers.
        - A :class:`LimitObserved` proposes a minimum interval between polls of a failing channel.

        If the store is unavailable, return [] and keep the results for the next call.
        """
        for channel, result in self._outages.expire(self._clock.wall_s()):
            self._report_symptom(channel, result)
        reports, self._reports = self._reports, []
        try:
            healths = await self._store.channels.record_polls(reports)
        except StoreUnavailable:
            self._reports = (reports + self._reports)[-_MAX_REPORTS:]
            return []
        events: list[CandidateFound | LimitObserved] = []
        last = dict(reports)
        for (channel_id, report), health in zip(reports, healths, strict=True):
            if health is None or (polled := self._get_polled(channel_id)) is None:
                continue
            channel, node_count = polled
            if notice := diagnose(health, node_count, report.result.detail):
                log.info("channel health changed", channel=channel_id[:8], kind=notice.kind, detail=notice.detail)
                delta = Delta(channel_id, channel.version, 0, report.result.at_s, (), notice=notice)
                # Without validators and a baseline, so that those in the store stay unchanged.
                events.append(CandidateFound(Candidate(delta, Validators(), b"")))
            if health.backoff_s and last[channel_id] is report:
                limit = PollingLimit(channel_id, LimitReason.FAILURE, ceil(health.backoff_s))
                events.append(LimitObserved(limit))
        return events

    def _report_symptom(self, channel: Channel, result: PollResult) -> None:
        self._reports.append((channel.id, PollReport(result, symptom_of(channel.url, result), is_repeat=True)))
