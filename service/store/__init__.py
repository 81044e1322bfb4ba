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
        self.link = link
        self.identity = IdentityWatch(link)
        together = Together(link)
        self.keyspaces = KeyspaceStore(together, Keyspaces(), LAYOUT.bits)
        self.loads = LoadStore(together, self.keyspaces)
        self.index = ChannelIndex(together, self.keyspaces, LAYOUT)
        self.channels = Channels(together, self.index)
        self.outbox = Outbox(link)
        self.cells = Cells(together)
        self.names = Directory(together, self.cells, "channel")
        self.entries = Directory(together, self.cells, "entry")
        self.subscriptions = Subscriptions(together, self.index, self.channels, self.outbox, self.identity)
        self.pauses = Pauses(link, self.outbox)
        self.users = Users(link)
        self.preferences = PreferenceStore(link)
        self.standing = Standings(together)
        self.forgetting = Forgetting(together, self.subscriptions, self.standing)
        self.people = People(link, self.forgetting, self.outbox)
        self.dead_letters = DeadLetters(link, self.outbox)
        self.ring = Ring(link)
        self.bots = Bots(link)
        self.policy = PolicyStore(link)
        self.bounds = BoundsStore(link)
        self.remarks = Remarks(together)
        self.moves = Moves(self.channels, self.subscriptions, self.remarks, self.bounds)
        self.spreads = Spreads(link)
        self.heard = Heard(link, together)
        self.hosts = Hosts(together)
        self.paces = Paces(together)
        self.inboxes = Inboxes(link, together)
        self.blocks = Blocks(link)
        self.requests = Requests(link, self.inboxes, self.ring, self.blocks)
        self.rehearsals = Rehearsals(link)
        self.accounts = Accounts(link)
        self.login_limits = LoginLimits(link)
        self.sessions = Sessions(link)
        self.api_keys = ApiKeys(link)
        self.audit = Audit(link)
        self.repeats = Repeats(link)
        self.invites = Invites(link)
        self.imports = Imports(link)
        self.websub = WebSub(link)
        self.rooms = Rooms(link)
        self.nodes = Nodes(link)

    async def ping(self) -> None:
        """Return if Redis answers. Raises :class:`service.errors.StoreUnavailable`."""
        await self.link.call("PING")

    async def remove_channel(self, cid: ChannelId) -> None:
        """End all subscriptions to a channel and delete it; can be repeated after a crash."""
        await self.subscriptions.end_all(cid)
        await self.channels.forget(cid)
        await self.bounds.forget(cid)
        await self.subscriptions.end_all(cid)
        await self.channels.forgotten(cid)

    async def close(self) -> None:
        """Close every connection."""
        await self.link.close()


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
