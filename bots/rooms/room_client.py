"""Group chats: carries out what :mod:`bots.rooms.room_state` decides, and hands what is said in rooms to the desk.

A room is served like a person: its subscriptions are stored under its own address, and its owners and admins may change
them. The room's copy of a message of ours is its receipt.

An invitation counts as its inviter's word if they sent it themselves, or if a service of their own server did (ADR
0069); quotas count who really sent it. Requests to other servers are made in tasks, each for a bounded time, so that
nobody waits for those who do not answer.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

import msgspec
import structlog

from bots.access import Access
from bots.cluster.assigned_users import AssignedUsers
from bots.commands.parser import LEAVE
from bots.delivery.outbox_consumer import OutboxConsumer
from bots.dialogue.request_handler import House, RequestHandler
from bots.i18n.translator import voice
from bots.replies.conversation import NotAdmitted, excuse, in_a_room
from bots.rooms.room_state import Check, Deed, Drop, Enter, Excuse, GiveUp, Leave, Settle, Visits, can_vouch
from bots.sessions.chat_session import Desk
from bots.tasks import cancel_and_wait
from bots.xmpp import service_discovery, stanzas
from bots.xmpp.events import (
    MessageBounced,
    MessageReceived,
    OccupantPresence,
    Receipt,
    RoomInvitation,
    RoomJoinRefused,
    RoomMessageReceived,
    UserAvailable,
)
from bots.xmpp.interface import XmppClient, XmppSessionLost
from bots.xmpp.message_ids import is_batch_id, new_message_id
from bots.xmpp.pubsub_client import PubsubClient, PubsubRefused
from service.clock import Clock
from service.errors import StoreUnavailable
from service.model import UserId
from service.net.sites import site_of_jid
from service.store import Store
from service.store.client.keys import user_id
from service.store.delivery.inbound_log import BotNotice, EntryId, InboundMessage

INVITATIONS_PER_HOUR: Final = 10
"""Of one address, be it a person's or a room's."""
INVITATIONS_PER_HOUR_OF_A_SITE: Final = 100
ANSWERS_WITHIN_S: Final = 20.0
"""An address that does not say within this time what it is, is taken to say nothing clear."""
PING_EVERY_S: Final = 300.0
"""How often each room is asked whether we are still in it (XEP-0410)."""
PING_WITHIN_S: Final = 30.0
_LOOK_EVERY_S: Final = 1.0
_RETRY_S: Final = 1.0
_MOST_WAITING: Final = 1_000
_MOST_WAITING_OF_A_SITE: Final = 100
_MOST_TASKS: Final = 2_000
"""Open requests to other servers."""
_BOOKMARKS: Final = "urn:xmpp:bookmarks:1"
_BOOKMARK_OPTIONS: Final = {
    "persist_items": "true", "max_items": "max", "send_last_published_item": "never", "access_model": "whitelist",
}  # fmt: skip
_DISCO_INFO: Final = "http://jabber.org/protocol/disco#info"
_WHAT_IS_IT: Final = f"<query xmlns='{_DISCO_INFO}'/>"
_UNCLEAR: Final = frozenset(
    (
        "service-unavailable", "feature-not-implemented", "item-not-found",  # we are in it
        "remote-server-not-found", "remote-server-timeout",
    )
)  # fmt: skip
"""Answers to a ping that do not say that we are out of the room."""
_log = structlog.get_logger()


class Rooms:
    """One bot's rooms. :meth:`run` drives them; the other methods never wait."""

    def __init__(
        self,
        store: Store,
        link: XmppClient,
        desk: Desk,
        *,
        assigned_users: AssignedUsers,
        delivery: OutboxConsumer,
        house: House,
        access: Access,
        clock: Clock,
    ) -> None:
        """Hand what is said to us to ``desk``; invitations of whom ``access`` does not admit are not followed.

        Of the rooms of our address only those are ours that ``assigned_users`` has.
        """
        self._assigned_users = assigned_users
        self._store = store
        self._link = link
        self._desk = desk
        self._delivery = delivery
        self._house = house
        self._access = access
        self._clock = clock
        self._bookmarks = PubsubClient(link, link.address)
        self._visits = Visits()
        self._jobs: asyncio.Queue[Callable[[], Coroutine[None, None, None]]] = asyncio.Queue()
        """Done one after the other, because they use the store."""
        self._waiting: Counter[str] = Counter()
        """The number of waiting invitations that are not in the store, by registrable domain of their senders."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._pinged_s = clock.monotonic_s()

    async def load(self) -> None:
        """Remember the rooms that are ours, before anything is sent to them; leave those that are not any more."""
        while True:
            try:
                found = await self._store.rooms.get(self._link.address)
                told = await self._store.rooms.message_ids(list(found))
                await self._store.inbound_log.set_home_address(list(found), self._link.address)
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
                continue
            known = {room: kept for room, kept in found.items() if self._is_ours(room)}
            self._visits.remember(known, told, self._clock.monotonic_s())
            self._link.rooms.update(known)
            for room in [room for room in self._link.rooms if not self._is_ours(room)]:
                self._plan(self._visits.handed_over(room))
                self._link.rooms.discard(room)
            return

    def _is_ours(self, room: str) -> bool:
        return self._assigned_users.includes(user_id(room))

    async def run(self) -> None:
        """Enter, leave and store rooms until cancelled."""
        try:
            while True:
                await self._link.connected.wait()
                self._look()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_EVERY_S):
                        job = await self._jobs.get()
                    await self._surely(job)
        finally:
            await cancel_and_wait(*tuple(self._tasks))

    def _look(self) -> None:
        """Begin what is due."""
        now_s = self._clock.monotonic_s()
        self._plan(self._visits.due(now_s))
        if now_s - self._pinged_s > PING_EVERY_S:
            self._pinged_s = now_s
            for room, nick in self._visits.inside():
                self._begin(self._still_in(room, nick))
            self._begin(self._leave_suspended())

    async def _surely(self, job: Callable[[], Coroutine[None, None, None]]) -> None:
        """Do a job, however long Redis is away."""
        with contextlib.suppress(XmppSessionLost):
            while True:
                try:
                    return await job()
                except StoreUnavailable:
                    await asyncio.sleep(_RETRY_S)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        """Do what waits for others in a task."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # What comes in.

    def started(self) -> None:
        """Enter all rooms again, as a session began that continues no earlier one."""
        self._plan(self._visits.restart(self._clock.monotonic_s()))

    def invited(self, said: MessageReceived, place: EntryId) -> None:
        """Consider an invitation, which stays at this place in the store, unless "", until that is done."""
        if said.invitation is None:
            return
        if not place:
            site = site_of_jid(said.jid)
            if self._waiting.total() >= _MOST_WAITING or self._waiting[site] >= _MOST_WAITING_OF_A_SITE:
                return
            self._waiting[site] += 1
        self._jobs.put_nowait(partial(self._see_to, said, said.invitation, place))

    def moved(self, event: OccupantPresence | RoomJoinRefused) -> None:
        """Note that somebody came or went, or that we were not let in."""
        now_s = self._clock.monotonic_s()
        self._plan(
            self._visits.refused(event) if isinstance(event, RoomJoinRefused) else self._visits.moved(event, now_s)
        )

    def bounced(self, event: MessageBounced) -> None:
        """Enter a room again that does not know us, as a message to it came back."""
        if event.condition == "not-acceptable" and not event.resource:
            self._visits.lost(event.jid, self._clock.monotonic_s())

    def heard(self, event: RoomMessageReceived) -> None:
        """Hand on what somebody said in a room, if it was said to us."""
        if self._visits.is_echo(event):
            self._delivery.on_receipt(Receipt(event.room, event.id))
            if event.room_id and is_batch_id(user_id(event.room), event.id) and self._jobs.qsize() < _MOST_WAITING:
                self._jobs.put_nowait(partial(self._store.rooms.record_message_id, event.room, event.room_id, event.id))
            return
        spoken = self._visits.to_us(event)
        if spoken is None:
            return
        person = self._visits.person(event.room, event.nick)
        if spoken.can_manage and spoken.text.strip().lower().rstrip(".!") in LEAVE:
            if self._jobs.qsize() < _MOST_WAITING:
                self._jobs.put_nowait(partial(self._leave, event.room, person))
            return
        self._desk.hear(
            MessageReceived(
                event.room, f"{event.room}/{event.nick}", event.id, spoken.text or "help", "", wants_receipt=False,
                language=event.language, reply_to_id=spoken.reply_to_id, is_reaction=event.is_reaction,
                is_groupchat=True, can_manage=spoken.can_manage, occupant_id=event.occupant_id,
                occupant_user_id=person,
            )
        )  # fmt: skip

    def whispered(self, said: MessageReceived) -> None:
        """Hand on what somebody in a room said to us alone."""
        nick = said.sender.partition("/")[2]
        if nick and not said.sent_s and self._visits.is_inside(said.jid):
            may_change, person = self._visits.is_manager(said.jid, nick), self._visits.person(said.jid, nick)
            own = msgspec.structs.replace(
                said, can_manage=may_change, wants_receipt=False, occupant_id=nick, occupant_user_id=person
            )
            self._desk.hear(own)

    # What is done.

    def _plan(self, deeds: list[Deed]) -> None:
        for deed in deeds:
            self._jobs.put_nowait(partial(self._do, deed))

    async def _do(self, deed: Deed) -> None:
        address = self._link.address
        match deed:
            case Check(room):
                self._begin(self._check(room))
            case Enter(room, nick, password):
                self._link.rooms.add(room)  # from now on its occupants can reach us
                self._link.send_unconfirmed(
                    stanzas.room_join(address, room, nick, password, service_discovery.PRESENCE_CONTENT)
                )
            case Leave(room, nick):
                self._link.send_unconfirmed(stanzas.presence(address, f"{room}/{nick}", "unavailable"))
            case Settle():
                await self._settle(deed)
            case GiveUp(room):
                await self._give_up(room)
            case Drop(room):
                self._begin(self._forget_address(room))
            case Excuse(to, room, reason):
                speaks = (await self._store.users.get(to)).user_settings.effective_language
                self._write(to, excuse(reason, room, voice(speaks)))

    def _write(self, to: str, words: str, kind: str = "chat") -> None:
        ident = new_message_id(user_id(to))
        self._link.send_unconfirmed(stanzas.message(self._link.address, to, ident, stanzas.body(words), kind=kind))

    async def _leave(self, room: str, person: UserId) -> None:
        """Leave a room, as one of its managers wants, unless they are suspended."""
        if not await self._are_suspended([person]):
            self._plan(self._visits.left(room))

    # Invitations.

    async def _see_to(self, said: MessageReceived, to: RoomInvitation, place: EntryId) -> None:
        await self._surely(partial(self._consider, said, to, place))
        if not place:
            self._waiting[site_of_jid(said.jid)] -= 1
            self._waiting = +self._waiting

    async def _consider(self, said: MessageReceived, to: RoomInvitation, place: EntryId) -> None:
        """Follow an invitation, or say why not, unless too many come from there."""
        if place and not self._assigned_users.includes(user_id(said.jid)):
            return  # the bot that serves them now has read it
        if to.is_accepted:
            self._plan(self._visits.invited(to, self._clock.monotonic_s()))
        elif said.jid not in self._link.rooms and not await self._is_too_much(said.jid, to):
            # nobody in a room invites us in its name
            if to.relayed_inviter and can_vouch(to.room, to.inviter) and len(self._tasks) < _MOST_TASKS:
                self._begin(self._ask_service(said, to, place))
                return
            await self._decide(to)
        await self._done(said, place)

    async def _done(self, said: MessageReceived, place: EntryId) -> None:
        if place:
            await self._store.inbound_log.remove_answered([(user_id(said.jid), place)])

    async def _is_too_much(self, sender: str, to: RoomInvitation) -> bool:
        """Return whether an invitation is ignored; the real sender is counted, whomever it names."""
        if not await self._may_invite(sender, INVITATIONS_PER_HOUR):
            return True
        site = f"@{site_of_jid(sender)}"  # no address of anybody's
        if not await self._may_invite(site, INVITATIONS_PER_HOUR_OF_A_SITE):
            return True
        return await self._are_suspended(map(user_id, {sender, to.room, to.inviter}))

    async def _may_invite(self, jid: str, per_hour: int) -> bool:
        """Return whether these are not too many invitations from one address, and count one."""
        return await self._store.users.count_use(jid, "invitation", per_hour, 3600.0)

    async def _ask_service(self, said: MessageReceived, to: RoomInvitation, place: EntryId) -> None:
        """Go on with an invitation once a service below the inviter's domain has said whether it has rooms."""
        is_vouched = await self._is_group_chat(to.room.rpartition("@")[2]) is True

        async def decide() -> None:
            await self._decide(msgspec.structs.replace(to, is_vouched=is_vouched))
            await self._done(said, place)

        await self._surely(decide)

    async def _decide(self, event: RoomInvitation) -> None:
        """Follow an invitation, or say why not: to the inviter only if it is surely they."""
        by = event.inviter
        speaker = voice((await self._store.users.get(by)).user_settings.effective_language if event.is_vouched else "")
        if not event.is_vouched and not self._access.is_open:
            self._decline(event, excuse("not vouched for", event.room, speaker))
        elif not await self._access.has_access(by):
            self._decline(event, NotAdmitted().text(speaker.language))
        elif not (event.relayed_inviter and event.is_vouched) or await self._may_invite(by, INVITATIONS_PER_HOUR):
            _log.info("invited", room=event.room, by=by, is_vouched=event.is_vouched)
            await self._accept(event)

    async def _accept(self, event: RoomInvitation) -> None:
        """Go there, or have the bot do that which serves the room."""
        room, address = event.room, self._link.address
        if self._is_ours(room):
            self._plan(self._visits.invited(event, self._clock.monotonic_s()))
            return
        accepted = msgspec.structs.replace(event, is_accepted=True)
        said = MessageReceived(room, event.inviter, "", "", "", wants_receipt=False, invitation=accepted)
        await self._store.inbound_log.add([InboundMessage(room, "", msgspec.msgpack.encode(said), address)])
        await self._store.inbound_log.notify([BotNotice(user_id(room))])

    def _decline(self, event: RoomInvitation, words: str) -> None:
        """Tell who invited us why we do not come: through the room, and directly if it is surely they."""
        if event.relayed_inviter:
            self._link.send_unconfirmed(
                stanzas.invitation_decline(self._link.address, event.room, event.relayed_inviter, words)
            )
        if event.is_vouched:
            self._write(event.inviter, words)

    # What other servers say.

    async def _check(self, room: str) -> None:
        """Have a room's address say whether it is a group chat; if it says nothing clear, its domain."""
        is_group_chat = await self._is_group_chat(room)
        if is_group_chat is None and await self._is_group_chat(room.rpartition("@")[2]) is False:
            is_group_chat = False
        self._plan(self._visits.checked(room, is_group_chat=is_group_chat))

    async def _is_group_chat(self, jid: str) -> bool | None:
        """Return whether an address is a room, or a service with rooms (XEP-0045 §6); None if it says nothing clear."""
        answer = await self._asked(jid, _WHAT_IS_IT, ANSWERS_WITHIN_S)
        told = answer.find(f"{{{_DISCO_INFO}}}query") if answer is not None else None
        if answer is None or answer.get("type") != "result" or told is None:
            return None
        identities = [(each.get("category"), each.get("type")) for each in told.iterfind(f"{{{_DISCO_INFO}}}identity")]
        features = [each.get("var") for each in told.iterfind(f"{{{_DISCO_INFO}}}feature")]
        return ("conference", "text") in identities and stanzas.NS_MUC in features

    async def _still_in(self, room: str, nick: str) -> None:
        answer = await self._asked(f"{room}/{nick}", "<ping xmlns='urn:xmpp:ping'/>", PING_WITHIN_S)
        if answer is not None and answer.get("type") == "error" and stanzas.error_condition(answer) not in _UNCLEAR:
            self._visits.lost(room, self._clock.monotonic_s())

    async def _asked(self, jid: str, question: str, within_s: float) -> Element | None:
        """Return the answer of an address, None if there is none in time."""
        with contextlib.suppress(TimeoutError, XmppSessionLost):
            async with asyncio.timeout(within_s):
                return await self._link.request(jid, "get", question)
        return None

    # Entering for good, and leaving.

    async def _are_suspended(self, people: Iterable[UserId]) -> bool:
        """Return whether any of these is suspended; "" is nobody."""
        return bool(await self._store.users.suspended_users(set(people) - {""}))

    async def _leave_suspended(self) -> None:
        """Leave the rooms behind which somebody is who was suspended meanwhile; they are looked at again later."""
        rooms = self._visits.people()
        with contextlib.suppress(StoreUnavailable):
            suspended = await self._store.users.suspended_users(frozenset[UserId]().union(*rooms.values()))
            for room, people in rooms.items():
                if people & suspended:
                    self._plan(self._visits.suspended(room, self._clock.monotonic_s(), is_new=False))

    async def _settle(self, deed: Settle) -> None:
        room, kept = deed.room, deed.kept
        if await self._are_suspended({*deed.people, user_id(room)} if deed.is_new else deed.people):
            _log.info("a room of somebody suspended", room=room)
            self._plan(self._visits.suspended(room, self._clock.monotonic_s(), is_new=deed.is_new))
            return
        await self._store.rooms.put(self._link.address, room, kept)
        await self._store.inbound_log.set_home_address([room], self._link.address)
        known = await self._store.users.get(room)
        if not known.welcomed:
            await self._store.users.update(room, welcomed=True)
            self._write(room, in_a_room(kept.nick, voice(known.user_settings.effective_language)), "groupchat")
        if self._visits.settled(room):
            self._delivery.on_presence(UserAvailable(room))
        if deed.is_new and self._link.is_account:  # bookmarks (XEP-0402) are for people who look after the account
            nick = f"<nick>{escape(kept.nick)}</nick>"
            conference = f"<conference xmlns='{_BOOKMARKS}' autojoin='true'>{nick}</conference>"
            with contextlib.suppress(TimeoutError, PubsubRefused):
                await self._bookmarks.publish_item(_BOOKMARKS, room, conference, _BOOKMARK_OPTIONS)

    async def _give_up(self, room: str) -> None:
        _log.info("out of a room", room=room)
        await RequestHandler(self._house, room).forget_everything()
        await self._store.rooms.drop(self._link.address, room)
        self._begin(self._forget_address(room))
        if self._link.is_account:
            with contextlib.suppress(TimeoutError, PubsubRefused):
                await self._bookmarks.retract_item(_BOOKMARKS, room)

    async def _forget_address(self, room: str) -> None:
        """Take a room's address for a person's again, once nothing is under way that its occupants sent us.

        A room answers in order: what they sent before we left comes before its answer.
        """
        if room in self._link.rooms:
            await self._asked(room, _WHAT_IS_IT, ANSWERS_WITHIN_S)
        if not self._visits.is_visited(room):
            self._link.rooms.discard(room)
