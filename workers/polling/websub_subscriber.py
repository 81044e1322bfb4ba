"""The WebSub subscriber (W3C) for a node's channels. It asks the hubs that feeds name to push changes.

The next request to a hub, and when to send it, depend only on data in the store (:mod:`service.feeds.websub_protocol`).
If a node dies, another node can therefore continue. Hubs only reduce detection delays: a channel is polled in any case.
"""

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit

import structlog

from service.clock import Clock
from service.errors import PublisherError, StoreUnavailable, UserError
from service.feeds.sandbox.protocol import DetectionResult
from service.feeds.websub_protocol import (
    HubState,
    is_unresponsive,
    leave_hub,
    next_request_s,
    record_request,
    request_form,
    update_hub,
)
from service.model import ChannelId, NodeId
from service.net.fetcher import Fetcher, FetchResult
from service.net.sites_and_networks import site_of
from service.overlay.ring import RingView, owned_prefixes
from service.store import Store
from service.store.channels.websub_store import new_hub_secrets
from workers.polling.politeness import Politeness

RENEWAL_INTERVAL_S = 60.0
"""Interval at which a node sends the due requests for its channels to their hubs."""

_MAX_CONCURRENT = 8
_MAX_PER_SITE = 50
_BATCH_SIZE = 500

log = structlog.get_logger(__name__)


class HubSubscriber:
    """Subscribes to channels at their hubs, and renews and ends these subscriptions, within the politeness limits.

    ``public_url`` is the URL at which hubs reach the console; if it is "", no hub is contacted.
    """

    def __init__(self, store: Store, fetcher: Fetcher, politeness: Politeness, clock: Clock, public_url: str) -> None:
        self._store = store
        self._fetcher = fetcher
        self._politeness = politeness
        self._clock = clock
        self._public_url = public_url.rstrip("/")
        self._slots = asyncio.Semaphore(_MAX_CONCURRENT)

    async def on_hubs_found(self, channel_id: ChannelId, hubs: Sequence[str], topic: str) -> None:
        """Store the WebSub hubs that a channel's document names; if a request to a hub is due now, send it.

        ``topic`` is the URL that the document states as its own. If the request fails, :meth:`renew` repeats it.
        """
        if not self._public_url:
            return
        try:
            state = await self._store.websub.change(
                channel_id, lambda state: update_hub(state, hubs, topic, new_hub_secrets())
            )
            if state is not None:
                async with self._slots:
                    await self._request(channel_id, state)
        except (PublisherError, UserError, StoreUnavailable) as error:
            log.info("websub subscription failed, will retry", channel=channel_id[:8], error=str(error))

    async def renew(self, ring: RingView, node_id: NodeId) -> None:
        """Send the due requests to the hubs of this node's channels: requests to subscribe, renew or unsubscribe.

        At most ``_MAX_PER_SITE`` requests are sent to one site; the others stay due. ``ring`` and ``node_id`` determine
        which channels the node owns. Raises :class:`StoreUnavailable`.
        """
        if not self._public_url:
            return
        due = await self._load_due(ring, node_id)
        by_site: dict[str, list[tuple[ChannelId, HubState]]] = {}
        for each in sorted(due, key=lambda each: next_request_s(each[1])):
            by_site.setdefault(site_of(_host(each[1])), []).append(each)
        await asyncio.gather(*(self._request_one_site(group[:_MAX_PER_SITE]) for group in by_site.values()))

    async def _load_due(self, ring: RingView, node_id: NodeId) -> list[tuple[ChannelId, HubState]]:
        """Return this node's channels for which a request to a hub is due, each with the state of its subscription."""
        # Channels without a hub are removed from the list of channels with hubs.
        websub, now_s = self._store.websub, self._clock.wall_s()
        registered = await websub.ids_in_buckets(owned_prefixes(ring, node_id))
        owned = [channel_id for channel_id in registered if ring.is_among_nearest(channel_id, node_id, 1)]
        due: list[tuple[ChannelId, HubState]] = []
        for start in range(0, len(owned), _BATCH_SIZE):
            batch = owned[start : start + _BATCH_SIZE]
            states = dict(zip(batch, await websub.get_many(batch), strict=True))
            await websub.unregister([channel_id for channel_id, state in states.items() if state is None])
            due += [
                (channel_id, state)
                for channel_id, state in states.items()
                if state is not None and next_request_s(state) <= now_s
            ]
        return due

    async def _request_one_site(self, due: Sequence[tuple[ChannelId, HubState]]) -> None:
        """Send the due requests to the hubs on one site, one after the other. If a request fails, the rest stay due."""
        async with self._slots:
            for channel_id, state in due:
                try:
                    await self._request_if_active(channel_id, state)
                except (PublisherError, UserError, StoreUnavailable) as error:
                    log.info(
                        "websub renewal failed, will retry", channel=channel_id[:8], hub=_host(state), error=str(error)
                    )
                    return

    async def _request_if_active(self, channel_id: ChannelId, state: HubState) -> None:
        """Send a channel's due request to its hub.

        If the channel is dormant or deleted, unsubscribe from the hub instead.
        """
        channel = await self._store.channels.get(channel_id)
        after: HubState | None = state
        if channel is None or channel.dormant:
            after = await self._store.websub.change(
                channel_id, lambda state: update_hub(state, (), "", new_hub_secrets())
            )
        if after is not None:
            await self._request(channel_id, after)

    async def _request(self, channel_id: ChannelId, state: HubState) -> None:
        """Send a channel's due request to its hub, unless another node has already done so.

        The request is recorded in the store before it is sent.
        """
        websub, now_s = self._store.websub, self._clock.wall_s()
        if now_s < next_request_s(state):
            return
        if is_unresponsive(state):
            await websub.compare_and_set(channel_id, state, leave_hub(state, new_hub_secrets()))
            return
        await self._politeness.acquire_redirect(_host(state))
        after = record_request(state, now_s)
        if await websub.compare_and_set(channel_id, state, after):
            callback = f"{self._public_url}/websub/{channel_id}/{state.token}"
            channel = await self._store.channels.get(channel_id)
            await self._fetcher.post(
                state.target.hub,
                request_form(after, callback),
                self._politeness.acquire_redirect,
                public_only=channel is None or not channel.private,
            )
            log.info("websub request sent", channel=channel_id[:8], hub=_host(state), status=after.status)


def hubs_of(fetched: FetchResult, findings: DetectionResult) -> tuple[tuple[str, ...], str]:
    """Return the WebSub hubs that a response names, and the topic: the URL by which hubs identify the document.

    ``findings`` are the parser's results for ``fetched``. Links in HTTP headers take precedence over links in the
    document (WebSub §4). If neither states a topic, the topic is the URL of the response. A protected document has no
    hubs.
    """
    if fetched.is_protected:
        return (), ""
    return fetched.links.hubs or findings.hubs, fetched.links.topic or findings.topic or fetched.url


def _host(state: HubState) -> str:
    return urlsplit(state.target.hub).hostname or ""
