"""What a node's polls come to: each is written down with its charge, and what is proved is offered as a notice.

A notice is offered once per poll and never kept: until its version is there, every further poll finds
the same. So nothing is lost when an owner is busy, outdated or dead.
"""

import contextlib
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from service.clock import Clock
from service.corona.events import StartPolling
from service.corona.messages import Candidate
from service.errors import StoreUnavailable
from service.feeds.pace import backoff_s
from service.feeds.verdicts import BUSY, Case, Outage, Report, charge_of, judge, rest_s
from service.model import Channel, ChannelId, Delta, Notice, PollResult, Validators
from service.store import Store

_REPORTS_KEPT = 1_000

log = structlog.get_logger(__name__)


class Place(msgspec.Struct, frozen=True):
    """A channel that this node polls, as it knows it, and at which phase."""

    channel: Channel
    phase: StartPolling


class Verdicts:
    """One node's part in judging channels.

    ``place_of`` tells where a channel stands here, None if others poll it. ``offer`` brings a candidate to
    the channel's owner.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        place_of: Callable[[ChannelId], Place | None],
        offer: Callable[[Candidate], Awaitable[None]],
    ) -> None:
        self._store = store
        self._clock = clock
        self._place_of = place_of
        self._offer = offer
        self._outage = Outage()
        self._reports: list[tuple[ChannelId, Report]] = []

    def polled(self, channel: Channel, result: PollResult, permanent_url: str) -> None:
        """Take in how a poll ended; what may be our own network's fault charges nobody yet."""
        charge, was_ours = None, self._outage.is_ours
        for settled, earlier in self._outage.settle(channel, result):
            if earlier is result:
                charge = charge_of(channel.url, result, permanent_url)
            else:
                self._charge(settled, earlier)
        self._reports.append((channel.id, Report(result, charge)))
        if self._outage.is_ours is not was_ours:
            log.warning("publishers can be reached again" if was_ours else "nobody can be reached; is our network up?")

    async def record(self) -> None:
        """Write down how polls ended since the last time, and judge; keep it for the next time if the store is away."""
        for channel, result in self._outage.overdue(self._clock.wall_s()):
            self._charge(channel, result)
        reports, self._reports = self._reports, []
        try:
            cases = await self._store.channels.polled(reports)
        except StoreUnavailable:
            self._reports = (reports + self._reports)[-_REPORTS_KEPT:]
            return
        with contextlib.suppress(StoreUnavailable):  # the next polls tell the same
            for (cid, report), case in zip(reports, cases, strict=True):
                if case is not None and (place := self._place_of(cid)) is not None:
                    await self._weigh(place, report.result, case)

    def _charge(self, channel: Channel, result: PollResult) -> None:
        self._reports.append((channel.id, Report(result, charge_of(channel.url, result), again=True)))

    async def _weigh(self, place: Place, result: PollResult, case: Case) -> None:
        cid = place.channel.id
        rest = backoff_s(case.refusals, place.phase.rota.interval_s) if case.charge == BUSY else rest_s(case)
        # A publisher that said how long it wants to be left alone knows better.
        if rest and not await self._store.hosts.paused_s(cid):
            await self._store.hosts.pause(cid, rest)
        notice = judge(case, place.phase.rota.size, result.detail)
        if notice is not None:
            log.info("verdict", channel=cid[:8], kind=notice.kind, detail=notice.detail)
            await self._offer(_candidate(place.channel, notice, result.at_s))


def _candidate(channel: Channel, notice: Notice, at_s: float) -> Candidate:
    """Return a candidate that leaves validators and memory alone."""
    return Candidate(Delta(channel.id, channel.version, 0, at_s, (), notice=notice), Validators(), b"")
