"""Publishes each public channel as a node of a pubsub service, and deletes the nodes of channels that are not public.

One bot of all publishes, the one that serves the first partition of the first address. Workers report new versions, and
all channels and nodes are walked over again and again, so that no report is needed. One request is under way at a time,
so that deliveries to people go on beside it, however slow the service is.

The stored position of a node moves once the service has all versions up to it; an interrupted step is done again.
Before an item is published, the service is asked whether it has the same one, because subscribers are notified of each
publication. A position is stored before its node is created, so that the node is deleted in any case once the channel
is not public any more.
"""

import asyncio
from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import fromstring

import structlog

from bots.cluster.assigned_users import AssignedUsers
from bots.pubsub import atom
from bots.pubsub.atom import Item
from bots.tasks import run_until_one_ends
from bots.xmpp.interface import XmppClient, XmppSessionLost
from bots.xmpp.pubsub_client import PubsubClient, PubsubRefused
from service.clock import Clock
from service.errors import StoreUnavailable
from service.feeds.parsing.html_text import one_line
from service.feeds.urls import without_selector
from service.model import Channel, ChannelId, Delta
from service.search import Searcher
from service.store import Store
from service.store.channels.pubsub_nodes import PublishedPosition
from service.store.client.keys import REGISTRY_BUCKETS

PUBLISHED_PER_S: Final = 10
MOST_AT_FIRST: Final = 20
"""Items on a node when it is created, or when its channel's log has dropped what came since."""
RESTS_S: Final = 600.0
"""How long a node is left alone after the service has refused it."""
_VERSIONS_AT_FIRST: Final = 30
_VERSIONS_AT_ONCE: Final = 20
_ITEMS_AT_ONCE: Final = 20
_TITLE_CHARS: Final = 200
_LOOKED_AT_ONCE: Final = 100
_BETWEEN_LOOKS_S: Final = 0.1
_BUCKETS_AT_ONCE: Final = 16
_LEADERSHIP_EVERY_S: Final = 1.0
_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 300.0
_OF_THE_NODE: Final = frozenset(("bad-request", "not-acceptable", "conflict", "not-allowed"))
"""Refusals that concern one node or item, rather than us, or everything."""
_CONFIG: Final = {
    "type": "urn:xmpp:pubsub-social-feed:1", "persist_items": "1", "max_items": "max", "access_model": "open",
    "publish_model": "publishers", "deliver_payloads": "1", "notify_delete": "1", "notify_retract": "1",
    "send_last_published_item": "never",
}  # fmt: skip
"""A node is a social feed (XEP-0472): open to all, written by us alone."""
_log = structlog.get_logger()


class Publishing:
    """The nodes of one service. :meth:`run` keeps them."""

    def __init__(
        self,
        store: Store,
        link: XmppClient,
        clock: Clock,
        assigned_users: AssignedUsers,
        *,
        service: str,
        least_subscribers: int,
        every_s: float,
    ) -> None:
        """Walk over all channels each ``every_s``, or longer; ``least_subscribers`` make a channel public."""
        self._store = store
        self._pubsub = PubsubClient(link, service)
        self._clock = clock
        self._service = service
        self._search = Searcher(store, least_subscribers)
        self._every_s = every_s
        self._assigned_users = assigned_users
        self._step = asyncio.Lock()
        self._due: dict[ChannelId, None] = {}
        self._has_due = asyncio.Event()
        self._resting_s: dict[ChannelId, float] = {}

    async def run(self) -> None:
        """Publish until cancelled, while this bot is the one that publishes."""
        await run_until_one_ends(self._hear(), self._walk(), self._work())

    async def finished(self) -> None:
        """Return when no step is under way, so that another bot may begin."""
        async with self._step:
            pass

    async def _wait_until_leading(self) -> None:
        while not self._assigned_users.is_publisher:  # noqa: ASYNC110 - heartbeats decide
            await asyncio.sleep(_LEADERSHIP_EVERY_S)

    # Finding the channels that are due.

    async def _hear(self) -> None:
        """Look at the channels that workers report."""
        after = ""
        while True:
            try:
                cids, after = await self._store.pubsub_nodes.wait_for_changes(after, 5.0)
                if self._assigned_users.is_publisher:
                    await self._look(cids)
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)

    async def _walk(self) -> None:
        """Look at all channels and all nodes."""
        while True:
            await self._wait_until_leading()
            try:
                for first in range(0, len(REGISTRY_BUCKETS), _BUCKETS_AT_ONCE):
                    buckets = REGISTRY_BUCKETS[first : first + _BUCKETS_AT_ONCE]
                    await self._look_over(await self._store.channels.ids_in_buckets(buckets))
                await self._look_over(await self._store.pubsub_nodes.channel_ids(self._service))
            except StoreUnavailable as error:
                _log.warning("nodes are not looked after", reason=str(error))
            await asyncio.sleep(self._every_s)

    async def _look_over(self, cids: Sequence[ChannelId]) -> None:
        for first in range(0, len(cids), _LOOKED_AT_ONCE):
            await self._look(cids[first : first + _LOOKED_AT_ONCE])
            await asyncio.sleep(_BETWEEN_LOOKS_S)

    async def _look(self, cids: Sequence[ChannelId]) -> None:
        """Note those of these channels as due whose nodes are not up to date."""
        now_s = self._clock.monotonic_s()
        self._resting_s = {cid: until_s for cid, until_s in self._resting_s.items() if until_s > now_s}
        awake = [cid for cid in cids if cid not in self._resting_s]
        for cid in await self.unfinished(awake) if awake else ():
            self._due[cid] = None
            self._has_due.set()

    async def unfinished(self, cids: Sequence[ChannelId]) -> list[ChannelId]:
        """Return those of these channels whose nodes are not up to date. Raises StoreUnavailable."""
        public = await self._search.filter_public(cids)
        positions = await self._store.pubsub_nodes.positions(self._service, cids)
        finished = {cid: PublishedPosition(channel.version, _title(channel)) for cid, channel in public.items()}
        return [cid for cid in cids if positions.get(cid) != finished.get(cid)]

    # Publishing one channel after the other.

    async def _work(self) -> None:
        retry_s = _RETRY_S
        while True:
            await self._has_due.wait()
            await self._wait_until_leading()
            cid = next(iter(self._due))
            del self._due[cid]
            if not self._due:
                self._has_due.clear()
            try:
                async with self._step:
                    await self.bring_up(cid)
                await self._look([cid])  # there may be more
            except PubsubRefused as error:
                hint = "a node is refused: may the bot make nodes on the service? (Prosody: admins of the component)"
                _log.warning(hint, service=self._service, node=cid, condition=error.condition)
                if error.condition in _OF_THE_NODE:
                    self._rest(cid)
                    continue
            except (XmppSessionLost, TimeoutError, StoreUnavailable) as error:
                _log.warning("publishing waits", service=self._service, retry_s=retry_s, reason=str(error))
            except Exception:  # noqa: BLE001 - whatever it is, it concerns this channel only
                _log.exception("a channel is not published", channel=cid)
                self._rest(cid)
                continue
            else:
                retry_s = _RETRY_S
                continue
            self._due[cid] = None  # behind the others
            self._has_due.set()
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, _LONGEST_RETRY_S)

    def _rest(self, cid: ChannelId) -> None:
        self._resting_s[cid] = self._clock.monotonic_s() + RESTS_S

    async def bring_up(self, cid: ChannelId) -> None:
        """Do the next step towards an up-to-date node of a channel.

        Raises :class:`PubsubRefused`, XmppSessionLost, TimeoutError, or StoreUnavailable.
        """
        public = await self._search.filter_public([cid])
        position = (await self._store.pubsub_nodes.positions(self._service, [cid])).get(cid)
        if cid in public:
            await self._go_on(public[cid], position or PublishedPosition())
        elif position is not None:
            await self._delete(cid)

    async def _go_on(self, channel: Channel, position: PublishedPosition) -> None:
        deltas, wanted = await self._since(channel, position.version)
        if not position.version:
            await self._create(channel)
        try:
            if position.version and position.title != _title(channel):
                await self._pubsub.configure_node(channel.id, _config(channel))
            await self._publish(channel.id, wanted)
        except PubsubRefused as error:
            if error.condition != "item-not-found":
                raise
            reached = PublishedPosition()  # the service has lost the node: from the beginning
        else:
            reached = PublishedPosition(deltas[-1].version if deltas else channel.version, _title(channel))
        await self._store.pubsub_nodes.put(self._service, channel.id, reached)

    async def _create(self, channel: Channel) -> None:
        """Create a node, or take over the one that is there."""
        await self._store.pubsub_nodes.put(self._service, channel.id, PublishedPosition())
        try:
            await self._pubsub.create_node(channel.id, _config(channel))
        except PubsubRefused as error:
            if error.condition != "conflict":
                raise
            await self._pubsub.configure_node(channel.id, _config(channel))
        _log.info("published as a node", channel=channel.id[:8], service=self._service)

    async def _delete(self, cid: ChannelId) -> None:
        try:
            await self._pubsub.delete_node(cid)
        except PubsubRefused as error:
            if error.condition != "item-not-found":
                raise
        await self._store.pubsub_nodes.drop(self._service, cid)
        _log.info("published no more", channel=cid[:8], service=self._service)

    async def _since(self, channel: Channel, version: int) -> tuple[list[Delta], list[Item]]:
        """Return the deltas after a version that come next, oldest first, and the items that they leave on the node.

        For a new node, and if the log has dropped some of them, these are the latest.
        """
        last = min(channel.version, version + _VERSIONS_AT_ONCE)
        deltas = await self._store.channels.deltas(channel.id, version + 1, last) if version else []
        if version and len(deltas) == last - version:
            told = [delta for delta in deltas if not delta.initial]
            return deltas, atom.items(channel, told, self._service)
        deltas = (await self._store.channels.versions(channel.id, _VERSIONS_AT_FIRST))[::-1]
        return deltas, atom.items(channel, deltas, self._service)[-MOST_AT_FIRST:]

    async def _publish(self, cid: ChannelId, wanted: Sequence[Item]) -> None:
        """Publish the items that the node does not have."""
        for first in range(0, len(wanted), _ITEMS_AT_ONCE):
            some = wanted[first : first + _ITEMS_AT_ONCE]
            kept = await self._pubsub.get_items(cid, [item.id for item in some])
            for item in some:
                made = fromstring(item.payload)  # noqa: S314 - we wrote it
                if item.id not in kept or not atom.same(kept[item.id], made):
                    await self._pubsub.publish_item(cid, item.id, item.payload)
                    await asyncio.sleep(1 / PUBLISHED_PER_S)


def _title(channel: Channel) -> str:
    return one_line(channel.title, _TITLE_CHARS) or channel.url


def _config(channel: Channel) -> dict[str, str]:
    return {"title": _title(channel), "description": without_selector(channel.url), **_CONFIG}
