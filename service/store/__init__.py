"""The only importer of redis: everything that lasts, and everything that is shared.

Rules of the room: every key is in ``keys``, with its schema; whatever changes together is one
script in ``scripts/`` whose keys are all in KEYS and of one slot; every change is atomic,
idempotent, or healed by an intent. No policy: what to do is decided by pure rooms.
Every method may raise :class:`service.errors.StoreUnavailable`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from service.clash.key_groups import Keyspaces, Layout
from service.model import ChannelId
from service.settings import Settings
from service.store.channels.admin_settings import Paces, Remarks
from service.store.channels.channels import Channels
from service.store.channels.moves import Moves
from service.store.channels.pubsub_nodes import Nodes
from service.store.channels.websub import WebSub
from service.store.client.connection import Link, Together
from service.store.client.identity_watch import IdentityWatch
from service.store.console.accounts import Accounts, ApiKeys, LoginLimits, Sessions
from service.store.console.audit import Audit, Repeats
from service.store.coordination.fleet_policy import BoundsStore, PolicyStore
from service.store.coordination.leases import Bots, Ring, Spreads
from service.store.coordination.request_budgets import Blocks, Hosts
from service.store.coordination.requests import Inboxes, Requests
from service.store.delivery.dry_runs import Rehearsals
from service.store.delivery.inbound_log import Heard
from service.store.delivery.outbox import DeadLetters, Outbox
from service.store.directory.cells import Cells
from service.store.directory.matrices import Directory
from service.store.directory.saved_searches import Standings
from service.store.people.erasure import Forgetting
from service.store.people.people import Invites, People
from service.store.people.rooms import Rooms
from service.store.people.users import PreferenceStore, Users
from service.store.subscriptions.channel_index import ChannelIndex
from service.store.subscriptions.keyspaces import KeyspaceStore, LoadStore
from service.store.subscriptions.opml_imports import Imports
from service.store.subscriptions.subscriptions import Pauses, Subscriptions

LAYOUT = Layout()
"""Of the keys of all subscriptions."""


class Store:
    """All parts of the store over one link."""

    def __init__(self, link: Link) -> None:
        """Wire the parts."""
        self.redis = link
        self.identity = IdentityWatch(link)
        together = Together(link)
        self.keyspaces = KeyspaceStore(together, Keyspaces(), LAYOUT.bits)
        self.key_group_loads = LoadStore(together, self.keyspaces)
        self.channel_index = ChannelIndex(together, self.keyspaces, LAYOUT)
        self.channels = Channels(together, self.channel_index)
        self.outbox = Outbox(link)
        self.matrix_cells = Cells(together)
        self.channel_directory = Directory(together, self.matrix_cells, "channel")
        self.entry_directory = Directory(together, self.matrix_cells, "entry")
        self.subscriptions = Subscriptions(together, self.channel_index, self.channels, self.outbox, self.identity)
        self.pauses = Pauses(link, self.outbox)
        self.users = Users(link)
        self.preferences = PreferenceStore(link)
        self.saved_searches = Standings(together)
        self.erasure = Forgetting(together, self.subscriptions, self.saved_searches)
        self.people = People(link, self.erasure, self.outbox)
        self.dead_letters = DeadLetters(link, self.outbox)
        self.ring = Ring(link)
        self.bot_endpoints = Bots(link)
        self.fleet_policy = PolicyStore(link)
        self.poll_bounds = BoundsStore(link)
        self.admin_settings = Remarks(together)
        self.channel_moves = Moves(self.channels, self.subscriptions, self.admin_settings, self.poll_bounds)
        self.partition_leases = Spreads(link)
        self.inbound_log = Heard(link, together)
        self.request_budgets = Hosts(together)
        self.poll_rate_history = Paces(together)
        self.node_inboxes = Inboxes(link, together)
        self.blocked_hosts = Blocks(link)
        self.worker_requests = Requests(link, self.node_inboxes, self.ring, self.blocked_hosts)
        self.dry_runs = Rehearsals(link)
        self.accounts = Accounts(link)
        self.login_limits = LoginLimits(link)
        self.sessions = Sessions(link)
        self.api_keys = ApiKeys(link)
        self.audit_log = Audit(link)
        self.idempotency = Repeats(link)
        self.invitations = Invites(link)
        self.import_queue = Imports(link)
        self.websub = WebSub(link)
        self.rooms = Rooms(link)
        self.pubsub_nodes = Nodes(link)

    async def ping(self) -> None:
        """Return if Redis answers. Raises :class:`service.errors.StoreUnavailable`."""
        await self.redis.call("PING")

    async def remove_channel(self, cid: ChannelId) -> None:
        """End all subscriptions to a channel and delete it; can be repeated after a crash."""
        await self.subscriptions.end_all(cid)
        await self.channels.forget(cid)
        await self.poll_bounds.forget(cid)
        await self.subscriptions.end_all(cid)
        await self.channels.forgotten(cid)

    async def close(self) -> None:
        """Close every connection."""
        await self.redis.close()


def open_store(settings: Settings) -> Store:
    """Return a store whose Redis may not be there yet: connections are made when they are needed."""
    return Store(Link(settings))


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
