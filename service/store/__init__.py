"""The store: all data that Coronet keeps in Redis. Coronet's processes share state only through the store.

:class:`Store` contains one repository for each kind of data. No other package uses the Redis driver.

Rules for this package:

- Every key is defined in :mod:`service.store.client.keys`, with its type and contents.
- Values that must change together are changed by one Lua script in ``scripts/``. All keys that a script uses are
  passed in ``KEYS``, and belong to the same slot of a Redis Cluster.
- A comment at the beginning of each script documents its keys, arguments and reply.
- If a process crashes during a change, any other process can complete the change (docs/guarantees.md). Each change is
  therefore atomic or safe to repeat, or begins by storing an *intent*: a note of what is to be done.
- The store makes no policy decisions. Policies belong to packages without I/O, such as ``service.clash``,
  ``service.corona``, ``service.discovery`` and ``service.feeds``.

Every method of a repository may raise :class:`service.errors.StoreUnavailable`. The caller may then repeat the call,
unless the method's docstring forbids it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.clash.key_groups import KeyLayout, Keyspaces
from service.model import ChannelId
from service.settings import Settings
from service.store.channels.admin_settings import AdminSettings
from service.store.channels.channel_moves import ChannelMoves
from service.store.channels.channels import Channels
from service.store.channels.credential_store import CredentialStore
from service.store.channels.poll_rate_history import PollRateHistory
from service.store.channels.public_entries import PublicEntries
from service.store.channels.pubsub_nodes import PubsubNodes
from service.store.channels.registry_changes import RegistryChanges
from service.store.channels.websub_store import WebSubStore
from service.store.client import keys
from service.store.client.data_loss_monitor import DataLossMonitor
from service.store.client.redis_client import RedisClient
from service.store.console.accounts import AccountStore
from service.store.console.api_keys import ApiKeyStore
from service.store.console.audit_log import AuditLog
from service.store.console.idempotency_store import IdempotencyStore
from service.store.console.login_limits import LoginLimits
from service.store.console.sessions import Sessions
from service.store.coordination.bot_messages import BotMessages
from service.store.coordination.bot_metrics_endpoints import BotMetricsEndpoints
from service.store.coordination.bot_requests import BotRequests
from service.store.coordination.fleet_policy_store import FleetPolicyStore
from service.store.coordination.host_blocklist import BlockedHosts
from service.store.coordination.partition_leases import PartitionLeases
from service.store.coordination.poll_bounds_store import PollBoundsStore
from service.store.coordination.request_budgets import RequestBudgets
from service.store.coordination.worker_inboxes import NodeInboxes
from service.store.coordination.worker_leases import Ring
from service.store.coordination.worker_requests import WorkerRequests
from service.store.delivery.announcements import AnnouncementStore
from service.store.delivery.dead_letters import DeadLetters
from service.store.delivery.fanout_units import FanOutUnits
from service.store.delivery.inbound_log import InboundLog
from service.store.delivery.outbox import Outbox
from service.store.delivery.webhooks import Webhooks
from service.store.directory.lookup_directory_client import DirectoryAnnouncements, DirectoryLookups
from service.store.directory.matrix_balancer import NodeLoads
from service.store.directory.matrix_cells import MatrixCells
from service.store.directory.matrix_directory import Directory
from service.store.directory.saved_search_store import SavedSearches
from service.store.people.bot_rooms import BotRooms
from service.store.people.erasure import Erasure
from service.store.people.feed_links import FeedLinks
from service.store.people.invitations import InvitationCodes
from service.store.people.user_administration import People
from service.store.people.users import HomeAddresses, PreferenceStore, Users
from service.store.subscriptions.channel_index import ChannelIndex
from service.store.subscriptions.key_group_loads import KeyGroupLoads
from service.store.subscriptions.keyspace_store import KeyspaceStore
from service.store.subscriptions.opml_imports import ConsoleImports, UserImports
from service.store.subscriptions.subscription_intents import SubscriptionIntents
from service.store.subscriptions.subscription_pauses import SubscriptionPauses
from service.store.subscriptions.subscriptions import Subscriptions

LAYOUT = KeyLayout()
"""Layout of the identifier keys by which subscriptions are assigned to key groups (CLASH)."""


class Store:
    """Gives access to all repositories of the store, which share one :class:`RedisClient`."""

    def __init__(self, redis: RedisClient) -> None:
        """Create the repositories, which send their commands through ``redis``. Nothing is sent to Redis yet."""
        self.redis = redis
        self.identity = DataLossMonitor(redis)
        self.keyspaces = KeyspaceStore(redis, Keyspaces(), LAYOUT.bits)
        self.key_group_loads = KeyGroupLoads(redis, self.keyspaces)
        self.channel_index = ChannelIndex(redis, self.keyspaces, LAYOUT)
        self.channels = Channels(redis, self.channel_index)
        self.credentials, self.public_entries = CredentialStore(redis), PublicEntries(redis, self.channels)
        self.registry_changes = RegistryChanges(redis)
        self.fanout_units = FanOutUnits(redis)
        self.outbox, self.webhooks = Outbox(redis), Webhooks(redis)
        cells = self.matrix_cells = MatrixCells(redis)
        self.channel_directory, self.entry_directory = (
            Directory(redis, cells, "channel"),
            Directory(redis, cells, "entry"),
        )
        self.redis_node_loads = NodeLoads(redis)
        self.subscription_intents = SubscriptionIntents(redis, self.channel_index, self.channels, self.outbox)
        self.subscriptions = Subscriptions(
            redis, self.channel_index, self.channels, self.subscription_intents, self.identity
        )
        self.pauses = SubscriptionPauses(redis, self.outbox)
        self.blocked_user_domains = BlockedHosts(redis, keys.BLOCKED_USER_DOMAINS)
        self.users = Users(redis, self.blocked_user_domains)
        self.announcements = AnnouncementStore(redis, self.users, self.outbox)
        self.preferences = PreferenceStore(redis)
        self.saved_searches = SavedSearches(redis)
        self.erasure = Erasure(redis, self.subscriptions, self.saved_searches, self.channels)
        self.people = People(redis, self.erasure, self.outbox, self.blocked_user_domains)
        self.dead_letters = DeadLetters(redis, self.outbox)
        self.ring = Ring(redis)
        self.bot_endpoints = BotMetricsEndpoints(redis)
        self.fleet_policy = FleetPolicyStore(redis)
        self.poll_bounds = PollBoundsStore(redis)
        self.admin_settings = AdminSettings(redis)
        self.channel_moves = ChannelMoves(self.channels, self.subscriptions, self.admin_settings, self.poll_bounds)
        self.partition_leases = PartitionLeases(redis)
        self.inbound_log, self.home_addresses = InboundLog(redis), HomeAddresses(redis)
        self.request_budgets = RequestBudgets(redis)
        self.poll_rate_history = PollRateHistory(redis)
        self.node_inboxes = NodeInboxes(redis)
        self.blocked_hosts = BlockedHosts(redis)
        self.worker_requests = WorkerRequests(redis, self.node_inboxes, self.ring, self.blocked_hosts)
        self.directory_announcements = DirectoryAnnouncements(redis)
        self.directory_lookups = DirectoryLookups(redis, self.node_inboxes, self.ring, self.directory_announcements)
        self.bot_requests, self.bot_messages = BotRequests(redis), BotMessages(redis)
        self.accounts, self.api_keys = AccountStore(redis), ApiKeyStore(redis)
        self.login_limits = LoginLimits(redis)
        self.sessions = Sessions(redis)
        self.audit_log = AuditLog(redis)
        self.idempotency = IdempotencyStore(redis)
        self.invitations, self.feed_links = InvitationCodes(redis), FeedLinks(redis)
        self.user_imports, self.console_imports = UserImports(redis), ConsoleImports(redis)
        self.websub = WebSubStore(redis)
        self.rooms, self.pubsub_nodes = BotRooms(redis), PubsubNodes(redis)

    async def ping(self) -> None:
        """Check that Redis replies. Raises :class:`service.errors.StoreUnavailable` if it does not."""
        await self.redis.call("PING")

    async def remove_channel(self, cid: ChannelId) -> None:
        """End all subscriptions to a channel and delete the channel.

        If the process crashes during the call, the removal may be incomplete until the call is repeated.
        """
        await self.subscriptions.end_all_of_channel(cid)
        await self.channels.delete(cid)
        await self.poll_bounds.delete(cid)
        # Once more, for users who subscribed while the channel was being deleted.
        await self.subscriptions.end_all_of_channel(cid)
        await self.channels.finish_deletion(cid)

    async def close(self) -> None:
        """Close all connections to Redis."""
        await self.redis.close()


def open_store(settings: Settings, *, is_guarded: bool = True) -> Store:
    """Return a store that connects to Redis when it is first used. Redis need not be running yet.

    If ``is_guarded`` is False, the store does not check whether Redis has lost data
    (:mod:`service.store.client.data_loss_guard`).
    """
    return Store(RedisClient(settings, is_guarded=is_guarded))


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Store]:
    """Context manager that opens a store, checks that Redis replies, and closes the store on exit.

    Raises :class:`service.errors.StoreUnavailable` if Redis does not reply.
    """
    store = open_store(settings)
    try:
        await store.ping()
        yield store
    finally:
        await store.close()
