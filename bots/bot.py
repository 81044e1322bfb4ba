"""One bot: creates and connects its parts, and dispatches XMPP events to them."""

import asyncio
import contextlib
from typing import Final

from bots.cluster.partitions import AssignedUsers
from bots.cluster.takeover import Takeover
from bots.dialogue.bot_services import BotServices
from bots.inbound.intake import Intake
from bots.pubsub.node_publisher import NodePublisher
from bots.rooms.room_client import RoomClient
from bots.sessions.adhoc_session import AdhocSessions
from bots.sessions.chat_session import ChatSessions
from bots.sessions.console_preview_service import ConsolePreviewService
from bots.sessions.reply_sender import ReplySender
from bots.xmpp import events
from bots.xmpp.bot_profile import publish_profile
from bots.xmpp.connection import Connection
from bots.xmpp.interface import XmppSessionLost
from bots.xmpp.presence_tracker import PresenceTracker
from service.asyncio_tasks import run_until_one_ends
from service.clock import Clock
from service.settings import Settings
from service.store import Store

_PUBLISH_PROFILE_TIMEOUT_S: Final = 30.0


class Bot:
    """One bot: its XMPP connection, and everything that serves the users assigned to it."""

    def __init__(
        self, settings: Settings, store: Store, clock: Clock, assigned_users: AssignedUsers, session: str
    ) -> None:
        """Create the parts of the bot without starting them; :meth:`run` starts them.

        ``session`` is the name of the XMPP session. It distinguishes the processes that are logged in to the same
        account.
        """
        self.connection = Connection(settings, session, self._on_event)
        self.connection.answers_presence = lambda: assigned_users.is_leader
        services = BotServices(settings, store, self.connection, clock, assigned_users)
        self.delivery = services.delivery
        self._opml_importer, self._webhooks = services.opml_importer, services.webhooks
        self._presence = PresenceTracker(store.users, self.delivery.on_presence)
        self._replies = ReplySender(store.inbound_log, store.bot_messages, self.connection, assigned_users)
        self._chat_sessions = ChatSessions(
            services,
            self._replies,
            lambda message, entry_id: self._rooms.on_invitation(message, entry_id),  # noqa: PLW0108 - created below
        )
        self._console_previews = ConsolePreviewService(services)
        self._adhoc_sessions = AdhocSessions(services)
        self._intake = Intake(services, self._chat_sessions, self._adhoc_sessions)
        self._rooms = RoomClient(services, self._chat_sessions)
        self._is_profile_due = asyncio.Event()
        self._node_publisher = None
        if settings.pubsub_service:
            self._node_publisher = NodePublisher(store, self.connection, clock, assigned_users, settings)
        self.takeover = Takeover(store, self.connection, self._intake)

    async def run(self) -> None:
        """Serve until cancelled; then stop the parts of the bot, each before the parts that it uses."""
        try:
            await self._rooms.load()
            parts = [self._rooms.run(), self._publish_profile(), self._opml_importer.run(), self._webhooks.run()]
            if self._node_publisher is not None:
                parts.append(self._node_publisher.run())
            await run_until_one_ends(
                self.connection.run(), self._answer_users(), self._presence.run(), self.delivery.run(), *parts
            )
        finally:
            await self._chat_sessions.close()
            await self._adhoc_sessions.close()

    async def _answer_users(self) -> None:
        """Answer messages until cancelled; then finish sending the current replies before the connection ends."""
        try:
            await run_until_one_ends(self._intake.run(), self._console_previews.run())
        finally:
            await self._chat_sessions.close()
            await self._replies.close()

    async def _publish_profile(self) -> None:
        """Publish the profile of the bot's account once in each XMPP session, until cancelled.

        A component publishes no profile.
        """
        while True:
            await self._is_profile_due.wait()
            self._is_profile_due.clear()
            if self.connection.is_account:
                with contextlib.suppress(TimeoutError, XmppSessionLost):  # the next session tries again
                    async with asyncio.timeout(_PUBLISH_PROFILE_TIMEOUT_S):
                        await publish_profile(self.connection)

    # Assigned users.

    async def on_partitions_gained(self, partitions: frozenset[int]) -> None:
        """Start serving the users in ``partitions``, which have just been assigned to this bot."""
        await self._rooms.load()
        self.delivery.on_partitions_gained(partitions)
        self._intake.on_partitions_gained()
        self._webhooks.on_partitions_gained()

    async def on_partitions_lost(self) -> None:
        """Wait until all work has ended for the users who are no longer assigned to this bot."""
        await self._rooms.load()
        await self._opml_importer.release_lost_users()
        if self._node_publisher is not None:
            await self._node_publisher.drain()
        await self._chat_sessions.wait_for_released_users()
        await self.delivery.drain()
        self.delivery.on_partitions_lost()

    # Events.

    def _on_event(self, event: events.Event) -> None:  # noqa: C901, PLR0912 - one arm per event
        is_account, rooms = self.connection.is_account, self.connection.rooms
        match event:
            case events.MessageReceived(is_groupchat=True):
                self._rooms.on_room_message(event)
            case events.MessageReceived(invitation=events.RoomInvitation()) if not is_account:
                self._rooms.on_invitation(event, "")  # a component's server stores nothing, and no other bot can join
            case events.MessageReceived(invitation=None) if event.jid in rooms:
                self._rooms.on_private_message(event)
            case events.MessageReceived():
                if not event.sent_s and event.invitation is None:
                    self._presence.on_client_active(event.jid, event.resource)
                self._intake.on_message(event)
            case events.AdhocCommandReceived():
                if event.jid not in rooms:
                    self._presence.on_client_active(event.jid, event.sender.partition("/")[2])
                self._adhoc_sessions.on_command(event)
            case events.Receipt() if event.jid not in rooms:  # in a room, the echo of a message is its receipt
                self.delivery.on_receipt(event)
            case events.MessageBounced() if event.resource and event.jid in rooms:
                pass  # an occupant returned the message, not the room
            case events.MessageBounced():
                self.delivery.on_bounced(event)
                self._rooms.on_bounced(event)
            case events.PresenceChanged():
                self._presence.on_presence_changed(event)
            case events.OccupantPresence() | events.RoomJoinRefused():
                self._rooms.on_room_presence(event)
            case events.SessionStarted():
                self.delivery.on_session_started()
                self._presence.on_session_started()
                self._rooms.on_session_started()
                self._is_profile_due.set()
                self._intake.on_session_started()
