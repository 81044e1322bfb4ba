"""What a node does about hubs (W3C WebSub): where a feed names one, it is asked to push what is new.

What to ask next, and when, follows from the store alone (``service.feeds.websub``), so a node may die at any moment
and another goes on. HubSubscriber only spare time and polls: whatever they do, the channel is polled.
"""

import asyncio
from collections.abc import Sequence
from itertools import groupby
from urllib.parse import urlsplit

import structlog

from service.clock import Clock
from service.errors import PublisherError, StoreUnavailable, UserError
from service.feeds.websub import (
    HubState,
    is_unresponsive,
    leave_hub,
    next_request_s,
    record_request,
    request_form,
    update_hub,
)
from service.model import ChannelId, NodeId
from service.net.fetcher import Fetcher
from service.net.sites import site_of
from service.overlay.ring import RingView, owned_prefixes
from service.store import Store
from service.store.channels.websub import new_hub_secrets
from workers.polling.politeness import Politeness

UPKEEP_S = 60.0
"""How often a node looks which of its channels' hubs are to be asked."""

_ASKED_AT_ONCE = 8
_PER_SITE = 50
_LOADED_AT_ONCE = 500

log = structlog.get_logger(__name__)


class HubSubscriber:
    """Subscribes at hubs, renews and leaves, within the fleet's politeness.

    ``public_url`` is where hubs reach the console; without one (""), nothing is asked.
    """

    def __init__(self, store: Store, fetcher: Fetcher, politeness: Politeness, clock: Clock, public_url: str) -> None:
        self._store = store
        self._fetcher = fetcher
        self._courtesy = politeness
        self._clock = clock
        self._public_url = public_url.rstrip("/")
        self._slots = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def noticed(self, cid: ChannelId, hubs: Sequence[str], topic: str) -> None:
        """Follow what a channel's document names, and ask the hub at once if that is news.

        ``topic`` is the document's own URL as it states it. What fails now is asked again by :meth:`keep_up`.
        """
        if not self._public_url:
            return
        try:
            state = await self._store.websub.change(
                cid, lambda state: update_hub(state, hubs, topic, new_hub_secrets())
            )
            if state is not None:
                async with self._slots:
                    await self._ask(cid, state)
        except (PublisherError, UserError, StoreUnavailable) as error:
            log.info("hub not asked", channel=cid[:8], why=str(error))

    async def keep_up(self, ring: RingView, me: NodeId) -> None:
        """Ask the hubs of our own channels what is due: to subscribe, to renew, or to let us go."""
        if not self._public_url:
            return
        try:
            due = await self._due(ring, me)
        except StoreUnavailable as error:
            log.warning("hub subscriptions unreadable", error=str(error))
            return
        by_site = groupby(sorted(due, key=_site_first), key=lambda each: site_of(_host(each[1])))
        await asyncio.gather(*(self._ask_one_site(list(group)[:_PER_SITE]) for _, group in by_site))

    async def _due(self, ring: RingView, me: NodeId) -> list[tuple[ChannelId, HubState]]:
        websub, now_s = self._store.websub, self._clock.wall_s()
        registered = await websub.ids_in_buckets(owned_prefixes(ring, me))
        mine = [cid for cid in registered if ring.has_among(cid, me, 1)]
        due: list[tuple[ChannelId, HubState]] = []
        for start in range(0, len(mine), _LOADED_AT_ONCE):
            cids = mine[start : start + _LOADED_AT_ONCE]
            states = dict(zip(cids, await websub.get_many(cids), strict=True))
            await websub.unregister([cid for cid, state in states.items() if state is None])
            due += [
                (cid, state) for cid, state in states.items() if state is not None and next_request_s(state) <= now_s
            ]
        return due

    async def _ask_one_site(self, due: Sequence[tuple[ChannelId, HubState]]) -> None:
        """Ask one after the other, until a hub has failed once: the rest are still due next time."""
        async with self._slots:
            for cid, state in due:
                try:
                    await self._ask_if_wanted(cid, state)
                except (PublisherError, UserError, StoreUnavailable) as error:
                    log.info("hub not asked", channel=cid[:8], hub=_host(state), why=str(error))
                    return

    async def _ask_if_wanted(self, cid: ChannelId, state: HubState) -> None:
        channel = await self._store.channels.get(cid)
        after: HubState | None = state
        if channel is None or channel.dormant:
            after = await self._store.websub.change(cid, lambda state: update_hub(state, (), "", new_hub_secrets()))
        if after is not None:
            await self._ask(cid, after)

    async def _ask(self, cid: ChannelId, state: HubState) -> None:
        """Ask what is due, unless another node does; that it was asked is noted first."""
        websub, now_s = self._store.websub, self._clock.wall_s()
        if now_s < next_request_s(state):
            return
        if is_unresponsive(state):
            await websub.compare_and_set(cid, state, leave_hub(state, new_hub_secrets()))
            return
        await self._courtesy.acquire_redirect(_host(state))
        after = record_request(state, now_s)
        if await websub.compare_and_set(cid, state, after):
            callback = f"{self._public_url}/websub/{cid}/{state.token}"
            await self._fetcher.post(state.named.hub, request_form(after, callback), self._courtesy.acquire_redirect)
            log.info("hub asked", channel=cid[:8], hub=_host(state), status=after.status)


def _host(state: HubState) -> str:
    return urlsplit(state.named.hub).hostname or ""


def _site_first(due: tuple[ChannelId, HubState]) -> tuple[str, float]:
    """Order by the hubs' sites, and the longest due of a site first."""
    return site_of(_host(due[1])), next_request_s(due[1])
