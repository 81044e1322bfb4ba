"""The only importer of redis: everything that lasts, and everything that is shared.

Rules of the room: every key is in ``keys``, with its schema; whatever changes together is one
script in ``scripts/`` whose keys are all in KEYS and of one slot; every change is atomic,
idempotent, or healed by an intent. No policy: what to do is decided by pure rooms.
Every method may raise :class:`service.errors.StoreUnavailable`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.clash.key_groups import KeyLayout, Keyspaces
from service.model import ChannelId
from service.settings import Settings
from service.store.channels.admin_settings import AdminSettings, PollRateHistory
from service.store.channels.channels import Channels
from service.store.channels.moves import ChannelMoves
from service.store.channels.pubsub_nodes import PubsubNodes
from service.store.channels.websub import WebSub
from service.store.client.connection import BatchingClient, RedisClient
from service.store.client.identity_watch import IdentityMonitor
from service.store.console.accounts import AccountStore, ApiKeyStore, LoginLimits, Sessions
from service.store.console.audit import AuditLog, IdempotencyStore
from service.store.coordination.fleet_policy import BoundsStore, PolicyStore
from service.store.coordination.leases import BotEndpoints, PartitionLeases, Ring
from service.store.coordination.request_budgets import BlockedHosts, RequestBudgets
from service.store.coordination.requests import NodeInboxes, WorkerRequests
from service.store.delivery.dry_runs import DryRunQueue
from service.store.delivery.inbound_log import InboundLog
from service.store.delivery.outbox import DeadLetters, Outbox
from service.store.directory.cells import MatrixCells
from service.store.directory.matrices import Directory
from service.store.directory.saved_searches import SavedSearches
from service.store.people.erasure import Erasure
from service.store.people.people import InvitationCodes, People
from service.store.people.rooms import BotRooms
from service.store.people.users import PreferenceStore, Users
from service.store.subscriptions.channel_index import ChannelIndex
from service.store.subscriptions.keyspaces import KeyspaceStore, LoadStore
from service.store.subscriptions.opml_imports import ImportQueue
from service.store.subscriptions.subscriptions import SubscriptionPauses, Subscriptions

LAYOUT = KeyLayout()
"""Of the keys of all subscriptions."""


class Store:
    """All parts of the store over one link."""

    def __init__(self, link: RedisClient) -> None:
        """Wire the parts."""
        self.redis = link
        self.identity = IdentityMonitor(link)
        together = BatchingClient(link)
        self.keyspaces = KeyspaceStore(together, Keyspaces(), LAYOUT.bits)
        self.key_group_loads = LoadStore(together, self.keyspaces)
        self.channel_index = ChannelIndex(together, self.keyspaces, LAYOUT)
        self.channels = Channels(together, self.channel_index)
        self.outbox = Outbox(link)
        self.matrix_cells = MatrixCells(together)
        self.channel_directory = Directory(together, self.matrix_cells, "channel")
        self.entry_directory = Directory(together, self.matrix_cells, "entry")
        self.subscriptions = Subscriptions(together, self.channel_index, self.channels, self.outbox, self.identity)
        self.pauses = SubscriptionPauses(link, self.outbox)
        self.users = Users(link)
        self.preferences = PreferenceStore(link)
        self.saved_searches = SavedSearches(together)
        self.erasure = Erasure(together, self.subscriptions, self.saved_searches)
        self.people = People(link, self.erasure, self.outbox)
        self.dead_letters = DeadLetters(link, self.outbox)
        self.ring = Ring(link)
        self.bot_endpoints = BotEndpoints(link)
        self.fleet_policy = PolicyStore(link)
        self.poll_bounds = BoundsStore(link)
        self.admin_settings = AdminSettings(together)
        self.channel_moves = ChannelMoves(self.channels, self.subscriptions, self.admin_settings, self.poll_bounds)
        self.partition_leases = PartitionLeases(link)
        self.inbound_log = InboundLog(link, together)
        self.request_budgets = RequestBudgets(together)
        self.poll_rate_history = PollRateHistory(together)
        self.node_inboxes = NodeInboxes(link, together)
        self.blocked_hosts = BlockedHosts(link)
        self.worker_requests = WorkerRequests(link, self.node_inboxes, self.ring, self.blocked_hosts)
        self.dry_runs = DryRunQueue(link)
        self.accounts = AccountStore(link)
        self.login_limits = LoginLimits(link)
        self.sessions = Sessions(link)
        self.api_keys = ApiKeyStore(link)
        self.audit_log = AuditLog(link)
        self.idempotency = IdempotencyStore(link)
        self.invitations = InvitationCodes(link)
        self.import_queue = ImportQueue(link)
        self.websub = WebSub(link)
        self.rooms = BotRooms(link)
        self.pubsub_nodes = PubsubNodes(link)

    async def ping(self) -> None:
        """Return if Redis answers. Raises :class:`service.errors.StoreUnavailable`."""
        await self.redis.call("PING")

    async def remove_channel(self, cid: ChannelId) -> None:
        """End all subscriptions to a channel and delete it; can be repeated after a crash."""
        await self.subscriptions.end_all_of_channel(cid)
        await self.channels.delete(cid)
        await self.poll_bounds.delete(cid)
        await self.subscriptions.end_all_of_channel(cid)
        await self.channels.finish_deletion(cid)

    async def close(self) -> None:
        """Close every connection."""
        await self.redis.close()


def open_store(settings: Settings) -> Store:
    """Return a store whose Redis may not be there yet: connections are made when they are needed."""
    return Store(RedisClient(settings))


async def connect(settings: Settings) -> Store:
    """Return a store that answered. Raises :class:`service.errors.StoreUnavailable`."""
    store = open_store(settings)
    try:
        await store.ping()
    except BaseException:
        await store.close()
        raise
    return store


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Store]:
    """Use a store that answered. Raises :class:`service.errors.StoreUnavailable`."""
    store = await connect(settings)
    try:
        yield store
    finally:
        await store.close()
