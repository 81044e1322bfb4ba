"""The monitor of channels' health on one node: records how polls ended, and proposes notices to subscribers.

A notice says, for example, that a channel is dead. It is offered to the channel's owner after each poll whose result
justifies it, and is never stored here: until a version with the notice exists, every further poll leads to the same
notice. So the notice is not lost when the owner is busy, outdated or dead.
"""

import contextlib
from collections.abc import Awaitable, Callable
from math import ceil

import msgspec
import structlog

from service.clock import Clock
from service.corona.events import StartPolling
from service.corona.messages import Candidate, PollingLimit
from service.corona.polling_limits import LimitReason
from service.errors import StoreUnavailable
from service.feeds.channel_health import (
    ChannelHealth,
    PollReport,
    diagnose,
    symptom_of,
)
from service.feeds.outage_detector import OutageDetector
from service.model import Channel, ChannelId, Delta, Notice, PollResult, Validators
from service.store import Store

_MAX_REPORTS = 1_000

log = structlog.get_logger(__name__)


class PolledChannel(msgspec.Struct, frozen=True):
    """A channel that this node polls, and the assignment with the schedule of the polls."""

    channel: Channel
    assignment: StartPolling


class HealthMonitor:
    """Records how one node's polls of channels end, and derives notices to subscribers and back-offs from them.

    ``get_polled`` returns a channel that this node polls, or None if only other nodes poll it. ``offer`` sends a
    candidate version with a notice to the channel's owner, and ``report_limit`` the back-off of a channel that fails.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        get_polled: Callable[[ChannelId], PolledChannel | None],
        offer: Callable[[Candidate], Awaitable[None]],
        report_limit: Callable[[PollingLimit], Awaitable[None]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._get_polled = get_polled
        self._offer = offer
        self._report_limit = report_limit
        self._outages = OutageDetector()
        self._reports: list[tuple[ChannelId, PollReport]] = []

    @property
    def is_offline(self) -> bool:
        """Whether this node's own network seems to be down."""
        return self._outages.is_offline

    def on_polled(self, channel: Channel, result: PollResult, permanent_url: str) -> None:
        """Record how a poll of a channel ended; ``permanent_url`` is the target of a permanent redirect, or "".

        A failure is not counted against the publisher while it may be the fault of this node's network.
        """
        symptom, was_outage = None, self._outages.is_offline
        for settled, earlier in self._outages.attribute(channel, result):
            if earlier is result:
                symptom = symptom_of(channel.url, result, permanent_url)
            else:
                self._report_symptom(settled, earlier)
        self._reports.append((channel.id, PollReport(result, symptom)))
        if self._outages.is_offline is not was_outage:
            log.warning("network outage ended" if was_outage else "network outage: no publisher is reachable")

    async def record(self) -> None:
        """Store how polls have ended since the last call; send the notices and back-offs that the results justify.

        If the store is unavailable, the results are stored at the next call.
        """
        for channel, result in self._outages.expire(self._clock.wall_s()):
            self._report_symptom(channel, result)
        reports, self._reports = self._reports, []
        try:
            healths = await self._store.channels.record_polls(reports)
        except StoreUnavailable:
            self._reports = (reports + self._reports)[-_MAX_REPORTS:]
            return
        last = dict(reports)
        with contextlib.suppress(StoreUnavailable):  # the next polls prove the same
            for (channel_id, report), health in zip(reports, healths, strict=True):
                if health is not None and (polled := self._get_polled(channel_id)) is not None:
                    await self._diagnose(polled, report.result, health)
                    if health.backoff_s and last[channel_id] is report:
                        limit = PollingLimit(channel_id, LimitReason.FAILURE, ceil(health.backoff_s))
                        await self._report_limit(limit)

    def _report_symptom(self, channel: Channel, result: PollResult) -> None:
        self._reports.append((channel.id, PollReport(result, symptom_of(channel.url, result), is_repeat=True)))

    async def _diagnose(self, polled: PolledChannel, result: PollResult, health: ChannelHealth) -> None:
        """Offer a notice to the channel's subscribers if the channel's health requires it."""
        notice = diagnose(health, polled.assignment.schedule.size, result.detail)
        if notice is not None:
            log.info("channel health changed", channel=polled.channel.id[:8], kind=notice.kind, detail=notice.detail)
            await self._offer(_notice_candidate(polled.channel, notice, result.at_s))


def _notice_candidate(channel: Channel, notice: Notice, at_s: float) -> Candidate:
    """Return a candidate version that contains only a notice, detected at ``at_s`` (Unix s).

    It has no validators and no baseline, so that those in the store stay unchanged.
    """
    return Candidate(Delta(channel.id, channel.version, 0, at_s, (), notice=notice), Validators(), b"")
