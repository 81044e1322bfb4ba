"""Publishes public channels as nodes of a pubsub service, and deletes the nodes of channels that are no longer public.

Only the bot that serves the first partition of the first address publishes. Workers report new versions. In addition,
all channels and nodes are scanned periodically, so that a lost report only delays the update. Requests are sent one at
a time, so that a slow service does not delay deliveries to users (guarantee I7).

For each node, the store contains the *position*: the last version of the channel that was published on the node, and
the title of the node. The position is advanced after publishing, so that an interrupted step is repeated. Before
publishing an item, the publisher asks the service whether it already has the same item, because each publication
notifies the node's subscribers. The first position is stored before the node is created. Therefore every node is known,
and is deleted when its channel is no longer public (guarantee I10).
"""

import asyncio
from collections.abc import Sequence
from typing import Final
from xml.etree.ElementTree import fromstring

import structlog

from bots.cluster.partitions import AssignedUsers
from bots.pubsub import atom_items
from bots.pubsub.atom_items import NodeItem
from bots.xmpp.interface import XmppClient, XmppSessionLost
from bots.xmpp.pubsub_client import PubsubClient, PubsubRefused
from service.asyncio_tasks import run_until_one_ends
from service.clock import Clock
from service.errors import StoreUnavailable
from service.feeds.canonical_urls import without_selector
from service.feeds.parsing.html_text import one_line
from service.model import Channel, ChannelId, Delta
from service.search.searcher import Searcher
from service.settings import Settings
from service.store import Store
from service.store.channels.pubsub_nodes import PublishedPosition
from service.store.client.keys import REGISTRY_BUCKETS

MAX_ITEMS_PER_S: Final = 10
MAX_INITIAL_ITEMS: Final = 20
"""Maximum number of items published on a new node, or on a node whose next versions are no longer in the channel's
log."""
REFUSAL_PAUSE_S: Final = 600.0
"""Time for which a node is not updated after the service has refused a request about it."""
_INITIAL_VERSIONS: Final = 30
_VERSIONS_PER_STEP: Final = 20
_ITEMS_PER_REQUEST: Final = 20
_MAX_TITLE_CHARS: Final = 200
_SCAN_BATCH: Final = 100
_SCAN_PAUSE_S: Final = 0.1
_BUCKETS_PER_READ: Final = 16
_LEADERSHIP_INTERVAL_S: Final = 1.0
_MIN_RETRY_S: Final = 1.0
_MAX_RETRY_S: Final = 300.0
_NODE_CONDITIONS: Final = frozenset(("bad-request", "not-acceptable", "conflict", "not-allowed"))
"""Error conditions that concern a single node or item, rather than all requests of the bot."""
_NODE_CONFIG: Final = {
    "type": "urn:xmpp:pubsub-social-feed:1", "persist_items": "1", "max_items": "max", "access_model": "open",
    "publish_model": "publishers", "deliver_payloads": "1", "notify_delete": "1", "notify_retract": "1",
    "send_last_published_item": "never",
}  # fmt: skip
"""Configuration of a social feed (XEP-0472): readable by everybody, writable by the bot."""
_log = structlog.get_logger()


class NodePublisher:
    """Publishes public channels on one pubsub service while :meth:`run` is running.

    Each public channel has a node on the service. The entries of the channel are published as items of this node.
    """

    def __init__(
        self, store: Store, xmpp: XmppClient, clock: Clock, assigned_users: AssignedUsers, settings: Settings
    ) -> None:
        """Create a publisher for the pubsub service in ``settings``."""
        self._store = store
        self._clock = clock
        self._assigned_users = assigned_users
        self._service = settings.pubsub_service
        self._scan_interval_s = settings.maintenance_interval_s
        self._pubsub = PubsubClient(xmpp, self._service)
        self._search = Searcher(store, settings.public_from_subscribers)
        self._step_lock = asyncio.Lock()
        self._due: dict[ChannelId, None] = {}
        """Channels whose nodes must be updated, as an ordered set."""
        self._has_due = asyncio.Event()
        self._paused_until_s: dict[ChannelId, float] = {}

    async def run(self) -> None:
        """Update nodes until cancelled, whenever this bot is the publisher."""
        await run_until_one_ends(self._follow_reports(), self._scan(), self._update_due())

    async def drain(self) -> None:
        """Wait until no node is being updated, so that another bot can take over publishing."""
        async with self._step_lock:
            pass

    async def _wait_until_publisher(self) -> None:
        while not self._assigned_users.is_publisher:  # noqa: ASYNC110 - heartbeats decide
            await asyncio.sleep(_LEADERSHIP_INTERVAL_S)

    # Finding channels to update.

    async def _follow_reports(self) -> None:
        """Whenever a worker reports a new version of a channel, check whether the channel's node is outdated."""
        after_id = ""
        while True:
            try:
                channel_ids, after_id = await self._store.pubsub_nodes.wait_for_changes(after_id)
                if self._assigned_users.is_publisher:
                    await self._check(channel_ids)
            except StoreUnavailable:
                await asyncio.sleep(_MIN_RETRY_S)

    async def _scan(self) -> None:
        """Periodically check all channels, and queue an update for each channel whose node is outdated.

        All existing nodes are checked too, because a node may still exist after its channel was deleted.
        """
        while True:
            await self._wait_until_publisher()
            try:
                for first in range(0, len(REGISTRY_BUCKETS), _BUCKETS_PER_READ):
                    buckets = REGISTRY_BUCKETS[first : first + _BUCKETS_PER_READ]
                    await self._check_in_batches(await self._store.channels.ids_in_buckets(buckets))
                await self._check_in_batches(await self._store.pubsub_nodes.channel_ids(self._service))
            except StoreUnavailable as error:
                _log.warning("checking pubsub nodes failed", error=str(error))
            await asyncio.sleep(self._scan_interval_s)

    async def _check_in_batches(self, channel_ids: Sequence[ChannelId]) -> None:
        for first in range(0, len(channel_ids), _SCAN_BATCH):
            await self._check(channel_ids[first : first + _SCAN_BATCH])
            await asyncio.sleep(_SCAN_PAUSE_S)

    async def _check(self, channel_ids: Sequence[ChannelId]) -> None:
        """Queue an update for each channel whose node is outdated, unless the channel is paused after an error."""
        now_s = self._clock.monotonic_s()
        self._paused_until_s = {cid: until_s for cid, until_s in self._paused_until_s.items() if until_s > now_s}
        active = [channel_id for channel_id in channel_ids if channel_id not in self._paused_until_s]
        for channel_id in await self.find_outdated(active) if active else ():
            self._due[channel_id] = None
            self._has_due.set()

    async def find_outdated(self, channel_ids: Sequence[ChannelId]) -> list[ChannelId]:
        """Return those of ``channel_ids`` whose nodes are not up to date, in the same order.

        Raises StoreUnavailable if the store does not respond.
        """
        public = await self._search.filter_public(channel_ids)
        positions = await self._store.pubsub_nodes.positions(self._service, channel_ids)
        latest = {cid: PublishedPosition(channel.version, _title(channel)) for cid, channel in public.items()}
        return [channel_id for channel_id in channel_ids if positions.get(channel_id) != latest.get(channel_id)]

    # Updating one node after the other.

    async def _update_due(self) -> None:
        retry_s = _MIN_RETRY_S
        while True:
            await self._has_due.wait()
            await self._wait_until_publisher()
            channel_id = next(iter(self._due))
            del self._due[channel_id]
            if not self._due:
                self._has_due.clear()
            log = _log.bind(service=self._service, node=channel_id)
            try:
                async with self._step_lock:
                    await self.update_node(channel_id)
                await self._check([channel_id])  # another step may be necessary
                retry_s = _MIN_RETRY_S
                continue
            except PubsubRefused as error:
                advice = "Allow the bot to create nodes (Prosody: admins of the component)."
                log.warning("pubsub request refused", condition=error.condition, advice=advice)
                if error.condition in _NODE_CONDITIONS:
                    self._pause(channel_id)
                    continue
            except (XmppSessionLost, TimeoutError, StoreUnavailable) as error:
                log.warning("pubsub node update failed, will retry", retry_in_s=retry_s, error=str(error))
            except Exception:
                log.exception("pubsub node update failed")
                self._pause(channel_id)
                continue
            self._due[channel_id] = None  # behind the others
            self._has_due.set()
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, _MAX_RETRY_S)

    def _pause(self, channel_id: ChannelId) -> None:
        self._paused_until_s[channel_id] = self._clock.monotonic_s() + REFUSAL_PAUSE_S

    async def update_node(self, channel_id: ChannelId) -> None:
        """Publish the next versions on the channel's node, or delete the node if the channel is no longer public.

        Call this again until the node is up to date.

        Raises :class:`PubsubRefused` if the service refuses a request, TimeoutError if it does not respond,
        XmppSessionLost if the XMPP session ends, or StoreUnavailable if the store does not respond. After any of these
        exceptions, the call can be repeated.
        """
        public = await self._search.filter_public([channel_id])
        position = (await self._store.pubsub_nodes.positions(self._service, [channel_id])).get(channel_id)
        if channel_id in public:
            await self._publish_next(public[channel_id], position or PublishedPosition())
        elif position is not None:
            await self._delete_node(channel_id)

    async def _publish_next(self, channel: Channel, position: PublishedPosition) -> None:
        """Publish the next few versions of ``channel`` on its node, and store the node's new position.

        ``position`` is the stored position: the last version that was published, and the title of the node. A new node
        is created first. If the service no longer has the node, the position is reset, so that the next call creates
        the node again.
        """
        deltas, items = await self._next_items(channel, position.version)
        if not position.version:
            await self._create_node(channel)
        try:
            if position.version and position.title != _title(channel):
                await self._pubsub.configure_node(channel.id, _node_config(channel))
            await self._publish_items(channel.id, items)
        except PubsubRefused as error:
            if error.condition != "item-not-found":
                raise
            reached = PublishedPosition()  # the service has lost the node: start over
        else:
            reached = PublishedPosition(deltas[-1].version if deltas else channel.version, _title(channel))
        await self._store.pubsub_nodes.put(self._service, channel.id, reached)

    async def _create_node(self, channel: Channel) -> None:
        """Create the node of ``channel``; if the node already exists, update its configuration instead.

        A record of the node is stored first. The record ensures that the node is found and deleted when the channel is
        no longer public.
        """
        await self._store.pubsub_nodes.put(self._service, channel.id, PublishedPosition())
        try:
            await self._pubsub.create_node(channel.id, _node_config(channel))
        except PubsubRefused as error:
            if error.condition != "conflict":
                raise
            await self._pubsub.configure_node(channel.id, _node_config(channel))
        _log.info("pubsub node created", channel=channel.id[:8], service=self._service)

    async def _delete_node(self, channel_id: ChannelId) -> None:
        try:
            await self._pubsub.delete_node(channel_id)
        except PubsubRefused as error:
            if error.condition != "item-not-found":
                raise
        await self._store.pubsub_nodes.drop(self._service, channel_id)
        _log.info("pubsub node deleted", channel=channel_id[:8], service=self._service)

    async def _next_items(self, channel: Channel, version: int) -> tuple[list[Delta], list[NodeItem]]:
        """Return (deltas, items): the next changes to publish on the channel's node, and the items to publish for them.

        ``version`` is the last version published on the node; it is 0 for a new node. Each delta contains the changes
        of one version.

        Usually, the result contains the deltas of the next few versions, oldest first. If the node is new, or if the
        store no longer has the next deltas, those of the channel's latest versions are returned instead.
        """
        last = min(channel.version, version + _VERSIONS_PER_STEP)
        deltas = await self._store.channels.deltas(channel.id, version + 1, last) if version else []
        if version and len(deltas) == last - version:
            notified = [delta for delta in deltas if not delta.initial]
            return deltas, atom_items.build_items(channel, notified, self._service)
        deltas = (await self._store.channels.versions(channel.id, _INITIAL_VERSIONS))[::-1]
        return deltas, atom_items.build_items(channel, deltas, self._service)[-MAX_INITIAL_ITEMS:]

    async def _publish_items(self, channel_id: ChannelId, items: Sequence[NodeItem]) -> None:
        """Publish each item that is missing from the channel's node, or that has different content there."""
        for first in range(0, len(items), _ITEMS_PER_REQUEST):
            batch = items[first : first + _ITEMS_PER_REQUEST]
            existing = await self._pubsub.get_items(channel_id, [item.id for item in batch])
            for item in batch:
                element = fromstring(item.payload)  # noqa: S314 - generated by atom_items
                if item.id not in existing or not atom_items.is_equal(existing[item.id], element):
                    await self._pubsub.publish_item(channel_id, item.id, item.payload)
                    await asyncio.sleep(1 / MAX_ITEMS_PER_S)


def _title(channel: Channel) -> str:
    return one_line(channel.title, _MAX_TITLE_CHARS) or channel.url


def _node_config(channel: Channel) -> dict[str, str]:
    return {"title": _title(channel), "description": without_selector(channel.url), **_NODE_CONFIG}
