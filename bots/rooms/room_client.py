"""The client for group chats: carries out the actions of :mod:`bots.rooms.room_membership`, and forwards messages.

A room is served like a user: its subscriptions are stored under its own address, and its owners and admins may change
them. A room sends every message back to its sender. If the bot gets back a message that it has sent, this counts as the
receipt of the message.

An invitation is trusted to come from the stated inviter if the inviter sent it directly, or if a service of the
inviter's own server relayed it (ADR 46). Quotas apply to the actual sender. Requests to other servers run in tasks with
time limits, so that a server that does not respond delays nobody (guarantee I7).
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

import msgspec
import structlog

from bots.commands.verb_synonyms import LEAVE
from bots.dialogue.bot_services import BotServices
from bots.dialogue.request_handler import RequestHandler
from bots.i18n.translator import get_translator
from bots.replies.greetings_and_refusals import ROOM_WELCOME, access_denied_text, declined_invitation_text
from bots.rooms import room_membership
from bots.rooms.invitation_policy import InvitationQuotas, can_vouch
from bots.sessions.chat_session import ChatSessions
from bots.xmpp import events, stanzas
from bots.xmpp.interface import XmppSessionLost
from bots.xmpp.message_ids import is_batch_id, new_message_id
from bots.xmpp.pubsub_client import PubsubClient, PubsubRefused
from service.asyncio_tasks import cancel_and_wait, retry_while_unavailable
from service.errors import StoreUnavailable
from service.model import UserId
from service.store.client.keys import user_id
from service.store.coordination.bot_messages import BotNotice
from service.store.delivery.inbound_log import EntryId, InboundMessage

DISCOVERY_TIMEOUT_S: Final = 20.0
"""Time limit for a response to service discovery. If none arrives, it is unclear whether the address is a group
chat."""
PING_INTERVAL_S: Final = 300.0
"""Interval at which the bot pings itself through each room, to check that it is still in the room (XEP-0410)."""
PING_TIMEOUT_S: Final = 30.0
_DUE_CHECK_INTERVAL_S: Final = 1.0
_MAX_QUEUED: Final = 1_000
_MAX_TASKS: Final = 2_000
"""Maximum number of pending requests to other servers. While it is reached, invitations cause no further requests."""
_NS_BOOKMARKS: Final = "urn:xmpp:bookmarks:1"
_BOOKMARK_OPTIONS: Final = {
    "persist_items": "true", "max_items": "max", "send_last_published_item": "never", "access_model": "whitelist",
}  # fmt: skip
_NS_DISCO_INFO: Final = "http://jabber.org/protocol/disco#info"
_DISCO_INFO_QUERY: Final = f"<query xmlns='{_NS_DISCO_INFO}'/>"
_INCONCLUSIVE_CONDITIONS: Final = frozenset(
    (
        "service-unavailable", "feature-not-implemented", "item-not-found",  # the bot is in the room
        "remote-server-not-found", "remote-server-timeout",
    )
)  # fmt: skip
"""Error conditions in a response to a ping after which the bot may still be in the room (XEP-0410 §3.3)."""
_log = structlog.get_logger()

_Job = Callable[[], Coroutine[None, None, None]]


class RoomClient:
    """Manages the rooms of one bot.

    :meth:`run` does the work. The methods that handle events only queue it, and never wait.
    """

    def __init__(self, services: BotServices, chat_sessions: ChatSessions) -> None:
        """Create a client that joins rooms, and forwards messages that address the bot to ``chat_sessions``.

        It joins only rooms that are assigned to this process. It accepts invitations only from users who may use the
        bot.
        """
        self._services = services
        self._store = services.store
        self._xmpp = services.xmpp
        self._clock = services.clock
        self._chat_sessions = chat_sessions
        self._bookmarks = PubsubClient(self._xmpp, self._xmpp.address)
        self._memberships = room_membership.RoomMemberships()
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue()
        """Work that uses the store; one job is executed at a time."""
        self._quotas = InvitationQuotas(self._store)
        self._tasks: set[asyncio.Task[None]] = set()
        """The tasks in which requests to other servers are pending."""
        self._last_ping_s = self._clock.monotonic_s()

    async def load(self) -> None:
        """Load the rooms that are assigned to this process, and leave every room that another process serves now.

        Call this before sending anything to the rooms. It waits until Redis is available.
        """
        await retry_while_unavailable(self._load)

    async def _load(self) -> None:
        stored = await self._store.rooms.get(self._xmpp.address)
        message_ids = await self._store.rooms.message_ids(list(stored))
        await self._store.home_addresses.set(list(stored), self._xmpp.address)
        assigned = {room: record for room, record in stored.items() if self._is_assigned(room)}
        self._memberships.load(assigned, message_ids, self._clock.monotonic_s())
        self._xmpp.rooms.update(assigned)
        for room in [room for room in self._xmpp.rooms if not self._is_assigned(room)]:
            self._queue_actions(self._memberships.hand_over(room))
            self._xmpp.rooms.discard(room)

    def _is_assigned(self, room: str) -> bool:
        return self._services.assigned_users.includes(user_id(room))

    async def run(self) -> None:
        """Join and leave rooms, and update the stored list of rooms, until cancelled."""
        try:
            while True:
                await self._xmpp.connected.wait()
                self._start_due_work()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_DUE_CHECK_INTERVAL_S):
                        job = await self._jobs.get()
                    await self._do(job)
        finally:
            await cancel_and_wait(*tuple(self._tasks))

    def _start_due_work(self) -> None:
        now_s = self._clock.monotonic_s()
        self._queue_actions(self._memberships.due_actions(now_s))
        if now_s - self._last_ping_s > PING_INTERVAL_S:
            self._last_ping_s = now_s
            for room, nick in self._memberships.joined_rooms():
                self._start_task(self._ping(room, nick))
            self._start_task(self._leave_suspended())

    async def _do(self, job: _Job) -> None:
        """Execute a job, repeating it while Redis is unavailable; abandon it if the XMPP session ends."""
        with contextlib.suppress(XmppSessionLost):
            await retry_while_unavailable(job)

    def _start_task(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Events.

    def on_session_started(self) -> None:
        """Join all rooms again, because in a new session the bot is not in any room."""
        self._queue_actions(self._memberships.on_session_started(self._clock.monotonic_s()))

    def on_invitation(self, message: events.MessageReceived, entry_id: EntryId) -> None:
        """Queue an invitation; drop it if too many invitations are queued.

        ``entry_id`` is the id of the invitation in the inbound log, or "" if it is not stored there. Once the
        invitation has been handled, it is removed from the log.
        """
        if message.invitation is None:
            return
        if not entry_id and not self._quotas.try_queue(message.jid):
            return
        self._jobs.put_nowait(partial(self._handle_invitation, message.jid, message.invitation, entry_id))

    def on_room_presence(self, event: events.OccupantPresence | events.RoomJoinRefused) -> None:
        """Update the state of a room after an occupant joined, changed or left, or after the room refused the bot."""
        if isinstance(event, events.RoomJoinRefused):
            self._queue_actions(self._memberships.on_join_refused(event))
        else:
            self._queue_actions(self._memberships.on_occupant_presence(event, self._clock.monotonic_s()))

    def on_bounced(self, event: events.MessageBounced) -> None:
        """If a room has returned a message because the bot is not in the room, join the room again."""
        if event.condition == "not-acceptable" and not event.resource:
            self._memberships.on_room_lost(event.jid, self._clock.monotonic_s())

    def on_room_message(self, message: events.MessageReceived) -> None:
        """Forward a message in a room to the chat sessions, if it is a command to the bot.

        A command to leave the room is not forwarded if its sender may manage the room; the bot then leaves the room.
        If the room has sent back the bot's own message, this counts as a receipt for the message.
        """
        room = message.jid
        if self._memberships.record_echo(message):
            self._services.delivery.on_receipt(events.Receipt(room, message.id))
            if message.room_id and is_batch_id(user_id(room), message.id) and self._jobs.qsize() < _MAX_QUEUED:
                self._jobs.put_nowait(partial(self._store.rooms.record_message_id, room, message.room_id, message.id))
            return
        command = self._memberships.addressed_command(message)
        if command is None:
            return
        if command.can_manage and command.text.strip().lower().rstrip(".!") in LEAVE:
            if self._jobs.qsize() < _MAX_QUEUED:
                self._jobs.put_nowait(partial(self._leave, room, command.occupant_user_id))
            return
        self._chat_sessions.on_message(command)

    def on_private_message(self, message: events.MessageReceived) -> None:
        """Forward a private message from an occupant of a room, if the bot is inside the room."""
        command = self._memberships.private_command(message)
        if command is not None:
            self._chat_sessions.on_message(command)

    # Actions.

    def _queue_actions(self, actions: list[room_membership.RoomAction]) -> None:
        for action in actions:
            self._jobs.put_nowait(partial(self._execute, action))

    async def _execute(self, action: room_membership.RoomAction) -> None:
        address = self._xmpp.address
        match action:
            case room_membership.CheckAddress(room):
                self._start_task(self._check_address(room))
            case room_membership.JoinRoom(room, nick, password):
                self._xmpp.rooms.add(room)  # from now on its occupants can send messages to the bot
                self._xmpp.send_unconfirmed(
                    stanzas.room_join(address, room, nick, password, self._xmpp.presence_content)
                )
            case room_membership.LeaveRoom(room, nick):
                self._xmpp.send_unconfirmed(stanzas.presence(address, f"{room}/{nick}", "unavailable"))
            case room_membership.ConfirmRoom():
                await self._confirm(action)
            case room_membership.DeleteRoom(room):
                await self._delete(room)
            case room_membership.ReleaseAddress(room):
                self._start_task(self._release_address(room))
            case room_membership.NotifyInviter(to, room, reason):
                language = (await self._store.users.get(to)).user_settings.effective_language
                self._send_text(to, declined_invitation_text(reason, room, get_translator(language)))

    def _send_text(self, to: str, text: str, kind: str = "chat") -> None:
        message_id = new_message_id(user_id(to))
        self._xmpp.send_unconfirmed(stanzas.message(self._xmpp.address, to, message_id, stanzas.body(text), kind=kind))

    async def _leave(self, room: str, occupant_user_id: UserId) -> None:
        """Leave a room at the request of one of its owners or admins, unless that owner or admin is suspended."""
        if not await self._quotas.is_any_suspended([occupant_user_id]):
            self._queue_actions(self._memberships.leave(room))

    # Invitations.

    async def _handle_invitation(self, sender: str, invitation: events.RoomInvitation, entry_id: EntryId) -> None:
        await self._do(partial(self._check_invitation, sender, invitation, entry_id))
        if not entry_id:
            self._quotas.on_handled(sender)

    async def _check_invitation(self, sender: str, invitation: events.RoomInvitation, entry_id: EntryId) -> None:
        """Accept, decline or ignore an invitation from ``sender``; ignore it if, for example, a quota is exceeded.

        ``entry_id`` is the id of the invitation in the inbound log, or "" if it is not stored there. Once the
        invitation has been handled, it is removed from the log.
        """
        if entry_id and not self._services.assigned_users.includes(user_id(sender)):
            return  # the bot that serves the sender now has read the message
        if invitation.is_accepted:
            self._queue_actions(self._memberships.on_invitation(invitation, self._clock.monotonic_s()))
        elif sender not in self._xmpp.rooms and not await self._quotas.must_ignore(sender, invitation):
            # an occupant of a joined room cannot invite the bot in the room's name
            room, inviter = invitation.room, invitation.inviter
            if invitation.relayed_inviter and can_vouch(room, inviter) and len(self._tasks) < _MAX_TASKS:
                self._start_task(self._verify_service(sender, invitation, entry_id))
                return
            await self._decide(invitation)
        await self._remove_from_log(sender, entry_id)

    async def _remove_from_log(self, sender: str, entry_id: EntryId) -> None:
        if entry_id:
            await self._store.inbound_log.remove_answered([(user_id(sender), entry_id)])

    async def _verify_service(self, sender: str, invitation: events.RoomInvitation, entry_id: EntryId) -> None:
        """Check whether the service that relayed an invitation is a group chat service; then decide on the invitation.

        If it is not a group chat service, its statement about the inviter is not trusted. The arguments are those of
        :meth:`_check_invitation`.
        """
        is_vouched = await self._is_group_chat(invitation.room.rpartition("@")[2]) is True

        async def decide() -> None:
            await self._decide(msgspec.structs.replace(invitation, is_vouched=is_vouched))
            await self._remove_from_log(sender, entry_id)

        await self._do(decide)

    async def _decide(self, invitation: events.RoomInvitation) -> None:
        """Accept or decline an invitation; ignore it if the inviter has exceeded the hourly quota."""
        inviter, is_vouched = invitation.inviter, invitation.is_vouched
        language = (await self._store.users.get(inviter)).user_settings.effective_language if is_vouched else ""
        translator, settings = get_translator(language), self._services.settings
        if not is_vouched and not self._services.access.is_open:
            text = declined_invitation_text("not vouched for", invitation.room, translator)
            self._decline(invitation, "inviter cannot be verified", text)
        elif not await self._services.access.has_access(inviter):
            text = access_denied_text(settings.who_may_use, settings.contact_addresses, translator)
            self._decline(invitation, "inviter may not use the bot", text)
        elif not (invitation.relayed_inviter and is_vouched) or await self._quotas.count(inviter):
            _log.info("room invitation accepted", room=invitation.room, inviter=inviter, vouched=is_vouched)
            await self._accept(invitation)

    async def _accept(self, invitation: events.RoomInvitation) -> None:
        """Join the room if it is assigned to this bot; otherwise pass the invitation to the bot that serves it."""
        room, address = invitation.room, self._xmpp.address
        if self._is_assigned(room):
            self._queue_actions(self._memberships.on_invitation(invitation, self._clock.monotonic_s()))
            return
        accepted = msgspec.structs.replace(invitation, is_accepted=True)
        message = events.MessageReceived(room, invitation.inviter, "", "", "", wants_receipt=False, invitation=accepted)
        await self._store.inbound_log.add([InboundMessage(room, "", msgspec.msgpack.encode(message), address)])
        await self._store.bot_messages.notify([BotNotice(user_id(room))])

    def _decline(self, invitation: events.RoomInvitation, reason: str, text: str) -> None:
        """Log that the bot declines the invitation for ``reason``, and tell the inviter so with ``text``.

        A relayed invitation is declined through the room. If the inviter's own server has confirmed who the inviter is,
        the bot also sends ``text`` to the inviter directly.
        """
        _log.info("room invitation declined", room=invitation.room, reason=reason)
        if invitation.relayed_inviter:
            self._xmpp.send_unconfirmed(
                stanzas.invitation_decline(self._xmpp.address, invitation.room, invitation.relayed_inviter, text)
            )
        if invitation.is_vouched:
            self._send_text(invitation.inviter, text)

    # Requests to other servers.

    async def _check_address(self, room: str) -> None:
        """Query whether an address is a group chat, and continue or abandon joining it accordingly.

        If the response is unclear, query the domain of the address as well.
        """
        is_group_chat = await self._is_group_chat(room)
        if is_group_chat is None and await self._is_group_chat(room.rpartition("@")[2]) is False:
            is_group_chat = False
        self._queue_actions(self._memberships.on_address_checked(room, is_group_chat=is_group_chat))

    async def _is_group_chat(self, jid: str) -> bool | None:
        """Return whether an address is a room or a service with rooms (XEP-0045 §6), or None if this is unclear."""
        response = await self._request(jid, _DISCO_INFO_QUERY, DISCOVERY_TIMEOUT_S)
        info = response.find(f"{{{_NS_DISCO_INFO}}}query") if response is not None else None
        if response is None or response.get("type") != "result" or info is None:
            return None
        identities = [
            (each.get("category"), each.get("type")) for each in info.iterfind(f"{{{_NS_DISCO_INFO}}}identity")
        ]
        features = [each.get("var") for each in info.iterfind(f"{{{_NS_DISCO_INFO}}}feature")]
        return ("conference", "text") in identities and stanzas.NS_MUC in features

    async def _ping(self, room: str, nick: str) -> None:
        """Ping the bot's own ``nick`` in a room (XEP-0410).

        If the response shows that the bot is no longer in the room, have it join again.
        """
        response = await self._request(f"{room}/{nick}", "<ping xmlns='urn:xmpp:ping'/>", PING_TIMEOUT_S)
        if response is None or response.get("type") != "error":
            return
        if stanzas.error_condition(response) not in _INCONCLUSIVE_CONDITIONS:
            self._memberships.on_room_lost(room, self._clock.monotonic_s())

    async def _request(self, jid: str, payload: str, timeout_s: float) -> Element | None:
        """Send a "get" request to an address and return the response, or None if none arrives in time."""
        with contextlib.suppress(TimeoutError, XmppSessionLost):
            async with asyncio.timeout(timeout_s):
                return await self._xmpp.request(jid, "get", payload)
        return None

    # Confirming and deleting rooms.

    async def _leave_suspended(self) -> None:
        """Leave each room whose inviter or an owner has been suspended; try to join the room again later."""
        users_by_room = self._memberships.responsible_users()
        with contextlib.suppress(StoreUnavailable):
            suspended = await self._store.users.suspended_users(frozenset[UserId]().union(*users_by_room.values()))
            for room, users in users_by_room.items():
                if users & suspended:
                    self._queue_actions(self._memberships.on_suspended(room, self._clock.monotonic_s(), is_new=False))

    async def _confirm(self, action: room_membership.ConfirmRoom) -> None:
        """Start serving a room that has admitted the bot; leave it instead if its inviter or an owner is suspended.

        The room is added to the stored list of rooms. If the bot has not served the room before, it also sends a
        greeting to the room.
        """
        room, record, users = action.room, action.record, action.responsible_users
        if await self._quotas.is_any_suspended({*users, user_id(room)} if action.is_new else users):
            _log.info("room left, responsible user suspended", room=room)
            self._queue_actions(self._memberships.on_suspended(room, self._clock.monotonic_s(), is_new=action.is_new))
            return
        await self._store.rooms.put(self._xmpp.address, room, record)
        await self._store.home_addresses.set([room], self._xmpp.address)
        state = await self._store.users.get(room)
        if not state.welcomed:
            await self._store.users.mark_welcomed(room)
            self._send_text(
                room,
                get_translator(state.user_settings.effective_language).gettext(ROOM_WELCOME, nick=record.nick),
                "groupchat",
            )
        if self._memberships.confirm(room):
            self._services.delivery.on_presence(events.UserPresence(room))
        if action.is_new and self._xmpp.is_account:  # bookmarks (XEP-0402) inform people who manage the account
            nick = f"<nick>{escape(record.nick)}</nick>"
            conference = f"<conference xmlns='{_NS_BOOKMARKS}' autojoin='true'>{nick}</conference>"
            with contextlib.suppress(TimeoutError, PubsubRefused):
                await self._bookmarks.publish_item(_NS_BOOKMARKS, room, conference, _BOOKMARK_OPTIONS)

    async def _delete(self, room: str) -> None:
        """Delete a room with its bookmark and all its data, such as its subscriptions."""
        _log.info("room left", room=room)
        await RequestHandler(self._services, room).forget_everything()
        await self._store.rooms.drop(self._xmpp.address, room)
        self._start_task(self._release_address(room))
        if self._xmpp.is_account:
            with contextlib.suppress(TimeoutError, PubsubRefused):
                await self._bookmarks.retract_item(_NS_BOOKMARKS, room)

    async def _release_address(self, room: str) -> None:
        """Treat messages from an address as a user's messages again, after the bot has left the room at this address.

        First, send the room a request and wait for the response. A room sends stanzas in order, so the last messages
        from its occupants arrive before the response. They are therefore not mistaken for messages from a user.
        """
        if room in self._xmpp.rooms:
            await self._request(room, _DISCO_INFO_QUERY, DISCOVERY_TIMEOUT_S)
        if not self._memberships.is_known(room):
            self._xmpp.rooms.discard(room)
