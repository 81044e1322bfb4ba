"""One bot: its parts, wired, and what comes in, handed to them."""

import asyncio
import contextlib
from typing import Final

from bots.access import Access
from bots.cluster.assigned_users import AssignedUsers
from bots.delivery.outbox_consumer import OutboxConsumer
from bots.dialogue.opml_import import Importing
from bots.dialogue.request_handler import House
from bots.dialogue.request_types import Limits
from bots.inbound.intake import Intake
from bots.inbound.takeover import Takeover
from bots.pubsub.publisher import Publishing
from bots.rooms.room_client import Rooms
from bots.sessions.adhoc_session import Counter
from bots.sessions.chat_session import Desk
from bots.sessions.dry_run import Rehearsing
from bots.sessions.reply_sender import ReplySender
from bots.tasks import run_until_one_ends
from bots.xmpp.connection import Connection
from bots.xmpp.events import (
    AdhocCommandReceived,
    ClientActive,
    Event,
    MessageBounced,
    MessageReceived,
    OccupantPresence,
    PresenceChanged,
    Receipt,
    RoomInvitation,
    RoomJoinRefused,
    RoomMessageReceived,
    SessionStarted,
)
from bots.xmpp.file_upload import FileUploader
from bots.xmpp.interface import XmppSessionLost
from bots.xmpp.presence import PresenceTracker
from bots.xmpp.service_discovery import publish_profile
from service.clock import Clock
from service.feeds.sandbox.opml_reader import OpmlReader
from service.net.upload_client import UploadClient as Files
from service.settings import Settings
from service.store import Store
from service.store.delivery.inbound_log import EntryId

_APPEAR_WITHIN_S: Final = 30.0


class Bot:
    """One XMPP connection, and all that is done for those whom ``assigned_users`` has."""

    def __init__(
        self, settings: Settings, store: Store, clock: Clock, assigned_users: AssignedUsers, session: str
    ) -> None:
        """Wire the parts; nothing runs before :meth:`run`. ``session`` tells an account's connections apart."""
        limits = Limits(
            subscriptions=settings.max_subscriptions_per_user,
            new_urls_per_hour=settings.max_new_urls_per_hour,
            commands_per_minute=settings.max_commands_per_minute,
            watches=settings.max_watches_per_user,
            public_from_subscribers=settings.public_from_subscribers,
        )
        self._assigned_users = assigned_users
        self.connection = Connection(settings, session, self._on_event)
        self._delivery = OutboxConsumer(store, self.connection, clock, assigned_users, settings.messages_per_s_per_user)
        self._presence = PresenceTracker(store.users, self._delivery.on_presence)
        access = Access(
            store.users,
            store.invitations,
            settings.who_may_use,
            settings.allowed_users,
            rooms=self.connection.rooms,
            per_minute=limits.commands_per_minute,
        )
        self._importing = Importing(store, self.connection, assigned_users, limits)
        house = House(
            store=store,
            delivery=self._delivery,
            clock=clock,
            limits=limits,
            door=access,
            importing=self._importing,
            uploads=FileUploader(self.connection, _files(settings)),
            lists=OpmlReader(),
            pubsub_service=settings.pubsub_service,
        )
        self._replies = ReplySender(store.inbound_log, self.connection, assigned_users)
        self._desk = Desk(
            self.connection,
            house,
            access=access,
            replies=self._replies,
            assigned_users=assigned_users,
            clock=clock,
            invited=self._on_invitation,
        )
        self._rehearsing = Rehearsing(house)
        self._counter = Counter(
            store, self.connection, house, access=access, assigned_users=assigned_users, clock=clock
        )
        self._intake = Intake(
            store.inbound_log, self.connection, assigned_users, desk=self._desk, orders=self._counter, clock=clock
        )
        self._has_session = asyncio.Event()
        self._publishing = _publishing(settings, store, self.connection, clock, assigned_users)
        self.takeover = Takeover(store, self.connection, self._intake)
        self._rooms = Rooms(
            store,
            self.connection,
            self._desk,
            assigned_users=assigned_users,
            delivery=self._delivery,
            house=house,
            access=access,
            clock=clock,
        )

    async def run(self) -> None:
        """Serve until cancelled; then finish what is under way, in order."""
        try:
            await self._rooms.load()
            keeping = [self._rooms.run(), self._appear(), self._importing.run()]
            if self._publishing is not None:
                keeping.append(self._publishing.run())
            await run_until_one_ends(
                self.connection.run(), self._talk(), self._presence.run(), self._delivery.run(), *keeping
            )
        finally:
            await self._desk.close()
            await self._counter.close()

    async def _talk(self) -> None:
        """Answer people until cancelled; then finish the replies under way, while there is a connection."""
        try:
            await run_until_one_ends(self._intake.run(), self._rehearsing.run())
        finally:
            await self._desk.close()
            await self._replies.close()

    def _on_invitation(self, said: MessageReceived, place: EntryId) -> None:
        self._rooms.invited(said, place)

    async def _appear(self) -> None:
        """Publish the picture and card of an account once in each session, until cancelled."""
        while True:
            await self._has_session.wait()
            self._has_session.clear()
            if self.connection.is_account:
                with contextlib.suppress(TimeoutError, XmppSessionLost):  # the next session tries again
                    async with asyncio.timeout(_APPEAR_WITHIN_S):
                        await publish_profile(self.connection)

    # Whom we serve.

    async def gained(self, parts: frozenset[int]) -> None:
        """``assigned_users`` has these parts, too."""
        self.connection.answers_presence = self._assigned_users.is_leader
        await self._rooms.load()
        self._delivery.on_partitions_gained(parts)
        self._intake.gained()

    async def lost(self) -> None:
        """``assigned_users`` has fewer people; return when nothing is under way for the others, or will ever be."""
        self.connection.answers_presence = self._assigned_users.is_leader
        await self._rooms.load()
        await self._importing.lost()
        if self._publishing is not None:
            await self._publishing.finished()
        await self._desk.finished()
        await self._delivery.drain()
        self._delivery.on_partitions_lost()

    def certain(self) -> None:
        """``assigned_users`` can be sure again of what it has."""
        self._delivery.on_lease_renewed()

    def _on_event(self, event: Event) -> None:  # noqa: C901 - one arm per event
        match event:
            case MessageReceived(invitation=RoomInvitation()) if (
                not self.connection.is_account
            ):  # nobody else may go there as our address
                self._rooms.invited(event, "")
            case MessageReceived(invitation=None) if event.jid in self.connection.rooms:
                self._rooms.whispered(event)
            case MessageReceived():
                self._intake.on_message(event)
            case AdhocCommandReceived():
                self._counter.hear(event)
            case Receipt() if event.jid not in self.connection.rooms:  # a room's receipt is what it gives back
                self._delivery.on_receipt(event)
            case MessageBounced() if event.resource and event.jid in self.connection.rooms:
                pass  # an occupant says so, not the room
            case MessageBounced():
                self._delivery.on_bounced(event)
                self._rooms.bounced(event)
            case ClientActive():
                self._presence.on_client_active(event)
            case PresenceChanged():
                self._presence.on_presence_changed(event)
            case RoomMessageReceived():
                self._rooms.heard(event)
            case OccupantPresence() | RoomJoinRefused():
                self._rooms.moved(event)
            case SessionStarted():
                self._delivery.on_session_started()
                self._presence.on_session_started()
                self._rooms.started()
                self._has_session.set()
                self._intake.started()


def _files(settings: Settings) -> Files:
    return Files(own_url=settings.upload_url, own_host=settings.xmpp_host, allow_private=settings.allow_private)


def _publishing(
    settings: Settings, store: Store, link: Connection, clock: Clock, assigned_users: AssignedUsers
) -> Publishing | None:
    if not settings.pubsub_service:
        return None
    return Publishing(
        store,
        link,
        clock,
        assigned_users,
        service=settings.pubsub_service,
        least_subscribers=settings.public_from_subscribers,
        every_s=settings.maintenance_interval_s,
    )
