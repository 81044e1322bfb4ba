"""Rooms: carries out what :mod:`bots.visits` decides, and brings what is said there to the desk.

A room is a person with many mouths: what it follows is kept under its own address, and whoever is one of its owners
or admins may change that. What the room gives back of our own words is their receipt.

Nothing is believed because it is said. An invitation counts as its inviter's word if they sent it themselves, or if a
service of their own server did (ADR 0069); quotas count who really sent it. Questions to other servers are asked in
tasks, each for a bounded time, so that nobody waits for those who do not answer.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Coroutine, Iterable
from typing import Final
from xml.etree.ElementTree import Element

import msgspec
import structlog

from bots import bounces, introduction, muc, stanzas
from bots.access import Access
from bots.charges import Charges
from bots.commands import LEAVE
from bots.delivery import Delivery
from bots.desk import Desk
from bots.house import House, RequestHandler
from bots.ids import fresh_id, is_batch
from bots.link import AskingLink, Bounced, InRoom, Invited, LinkLost, Receipt, RoomRefused, Said, SaidInRoom, Seen
from bots.replies.talking import NotAdmitted, excuse, in_a_room
from bots.tasks import end
from bots.visits import Check, Deed, Drop, Enter, Excuse, GiveUp, Inside, Keep, Leave, Settle, Visits
from bots.voice import voice
from service.clock import Clock
from service.errors import StoreUnavailable
from service.model import UserId
from service.net.sites import site_of_jid
from service.store import Store
from service.store.heard import Notice, Place, Sentence
from service.store.keys import user_id

INVITATIONS_PER_HOUR: Final = 10
"""Of one address, be it a person's or a room's."""
INVITATIONS_PER_HOUR_OF_A_SITE: Final = 100
ANSWERS_WITHIN_S: Final = 20.0
"""An address that does not say within this time what it is, is taken to say nothing clear."""
PING_EVERY_S: Final = 300.0
"""How often we ask each room whether we are still in it (XEP-0410)."""
PING_WITHIN_S: Final = 30.0
_LOOK_EVERY_S: Final = 1.0
_RETRY_S: Final = 1.0
_MOST_WAITING: Final = 1_000
_MOST_TASKS: Final = 2_000
"""Questions to other servers that are open."""
_MOST_WAITING_OF_A_SITE: Final = 100
_STILL_IN: Final = frozenset(("service-unavailable", "feature-not-implemented", "item-not-found"))
_UNCLEAR: Final = frozenset(("remote-server-not-found", "remote-server-timeout"))
_log = structlog.get_logger()


class _Invitation(msgspec.Struct, frozen=True):
    """What was said, and where that stands in the store, "" if it stands nowhere."""

    said: Said
    to: Invited
    place: Place

    @property
    def site(self) -> str:
        """The registrable domain that it comes from."""
        return site_of_jid(self.said.jid)


class _SendAway(msgspec.Struct, frozen=True):
    """One of a room's managers, this person if that is known, wants us gone."""

    room: str
    person: UserId


class Rooms:
    """One bot's rooms. :meth:`run` drives them; the other methods tell what comes in and never wait."""

    def __init__(
        self,
        store: Store,
        link: AskingLink,
        desk: Desk,
        *,
        charges: Charges,
        delivery: Delivery,
        house: House,
        door: Access,
        clock: Clock,
    ) -> None:
        """Hand what is said to us to ``desk``; invitations of whom ``door`` does not admit are not followed.

        Of the rooms of our address only those are ours that ``charges`` has.
        """
        self._charges = charges
        self._store = store
        self._link = link
        self._desk = desk
        self._delivery = delivery
        self._house = house
        self._door = door
        self._clock = clock
        self._visits = Visits()
        self._deeds: asyncio.Queue[Deed | _Invitation | _SendAway] = asyncio.Queue()
        self._waiting: Counter[str] = Counter()
        """Of the invitations that stand nowhere, how many wait, by site."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._pinged_s = clock.monotonic_s()

    async def load(self) -> None:
        """Remember the rooms that are ours, before anything is sent to them; leave those that are not any more."""
        while True:
            try:
                found = await self._store.rooms.of(self._link.address)
                told = await self._store.rooms.told(list(found))
                await self._store.heard.at_home(list(found), self._link.address)
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
        return self._charges.holds(user_id(room))

    async def run(self) -> None:
        """Enter, leave and remember rooms until cancelled."""
        try:
            await self._serve()
        finally:
            await end(*tuple(self._tasks))

    async def _serve(self) -> None:
        while True:
            await self._link.up.wait()
            now_s = self._clock.monotonic_s()
            self._plan(self._visits.due(now_s))
            if now_s - self._pinged_s > PING_EVERY_S:
                self._pinged_s = now_s
                for room, nick in self._visits.inside():
                    self._begin(self._still_in(room, nick))
                self._begin(self._leave_suspended())
            deed: Deed | _Invitation | _SendAway | None = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    deed = await self._deeds.get()
            if deed is not None:
                await self._surely(deed)
            if isinstance(deed, _Invitation) and not deed.place:
                self._waiting[deed.site] -= 1
                self._waiting = +self._waiting

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        """Do what waits for others, beside all else."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # What comes in.

    def started(self) -> None:
        """A session began that continues no earlier one."""
        self._plan(self._visits.restart(self._clock.monotonic_s()))

    def invited(self, said: Said, place: Place) -> None:
        """Somebody wants us in a room; that stands at this place in the store until we have seen to it."""
        if said.invited is None:
            return
        invitation = _Invitation(said, said.invited, place)
        if not place:
            if self._waiting.total() >= _MOST_WAITING or self._waiting[invitation.site] >= _MOST_WAITING_OF_A_SITE:
                return
            self._waiting[invitation.site] += 1
        self._deeds.put_nowait(invitation)

    def moved(self, event: InRoom | RoomRefused) -> None:
        """Somebody came or went, or we were not let in."""
        now_s = self._clock.monotonic_s()
        self._plan(self._visits.refused(event) if isinstance(event, RoomRefused) else self._visits.moved(event, now_s))

    def bounced(self, event: Bounced) -> None:
        """What we said came back: to a room that does not know us, we are not in it."""
        if event.condition == "not-acceptable" and not event.resource:
            self._visits.lost(event.jid, self._clock.monotonic_s())

    def heard(self, event: SaidInRoom) -> None:
        """Somebody spoke in a room."""
        if self._visits.is_echo(event):
            self._delivery.receipt(Receipt(event.room, event.id))
            if event.room_id and is_batch(user_id(event.room), event.id) and self._deeds.qsize() < _MOST_WAITING:
                self._deeds.put_nowait(Keep(event.room, event.room_id, event.id))
            return
        spoken = self._visits.to_us(event)
        if spoken is None:
            return
        if spoken.may_change and spoken.text.strip().lower().rstrip(".!") in LEAVE:
            if self._deeds.qsize() < _MOST_WAITING:
                self._deeds.put_nowait(_SendAway(event.room, self._visits.person(event.room, event.nick)))
            return
        text, sender = spoken.text or "help", f"{event.room}/{event.nick}"
        self._desk.hear(
            Said(
                event.room, sender, event.id, text, "", wants_receipt=False, language=event.language,
                points_at=spoken.points_at, reacted=event.reacted, aloud=True, may_change=spoken.may_change,
                occupant=event.occupant, person=self._visits.person(event.room, event.nick),
            )
        )  # fmt: skip

    def whispered(self, said: Said) -> None:
        """Somebody in a room spoke to us alone."""
        nick = said.sender.partition("/")[2]
        if nick and not said.at_s and self._visits.is_inside(said.jid):
            may_change, person = self._visits.is_manager(said.jid, nick), self._visits.person(said.jid, nick)
            own = msgspec.structs.replace(
                said, may_change=may_change, wants_receipt=False, occupant=nick, person=person
            )
            self._desk.hear(own)

    # What is done.

    def _plan(self, deeds: list[Deed]) -> None:
        for deed in deeds:
            self._deeds.put_nowait(deed)

    async def _surely(self, deed: Deed | _Invitation | _SendAway) -> None:
        """Do it, however long Redis is away."""
        while True:
            try:
                await self._do(deed)
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
            except LinkLost:
                return
            else:
                return

    async def _do(self, deed: Deed | _Invitation | _SendAway) -> None:  # noqa: C901 - one arm per deed
        address = self._link.address
        match deed:
            case _Invitation():
                await self._see_to(deed)
            case _SendAway(room, person):
                if not await self._are_suspended([person]):
                    self._plan(self._visits.left(room))
            case Check(room):
                self._begin(self._check(room))
            case Enter(room, nick, password):
                self._link.rooms.add(room)  # from now on its occupants can reach us
                self._link.hint(muc.entering(address, room, nick, password, introduction.PRESENT))
            case Leave(room, nick):
                self._link.hint(muc.leaving(address, room, nick))
            case Settle():
                await self._settle(deed)
            case GiveUp(room):
                await self._give_up(room)
            case Drop(room):
                self._begin(self._forget_address(room))
            case Excuse(to, room, reason):
                speaks = (await self._store.users.get(to)).habits.speaks
                content = stanzas.payload(excuse(reason, room, voice(speaks)))
                self._link.hint(stanzas.message(address, to, fresh_id(user_id(to)), content))
            case Inside(room):
                self._delivery.presence(Seen(room))
            case Keep(room, room_id, message_id):
                await self._store.rooms.keep_told(room, room_id, message_id)

    # Whom to believe.

    async def _see_to(self, invitation: _Invitation) -> None:
        """Follow an invitation, or say why not, unless too many come from there."""
        uid, to = user_id(invitation.said.jid), invitation.to
        if invitation.place and not self._charges.holds(uid):
            return  # whoever serves them now has read it
        if to.is_accepted:
            self._plan(self._visits.invited(to, self._clock.monotonic_s()))
        elif invitation.said.jid not in self._link.rooms and not await self._is_too_much(invitation):
            # nobody in a room invites us in its name
            if to.through and muc.can_vouch(to.room, to.by) and len(self._tasks) < _MOST_TASKS:
                self._begin(self._ask_service(invitation))
                return
            await self._decide(to)
        await self._see_off(invitation)

    async def _see_off(self, invitation: _Invitation) -> None:
        if invitation.place:
            await self._store.heard.done([(user_id(invitation.said.jid), invitation.place)])

    async def _is_too_much(self, invitation: _Invitation) -> bool:
        """Return whether this is not even looked at; who really sent it is counted, whomever it names."""
        sender, to = invitation.said.jid, invitation.to
        if not await self._may_invite(sender, INVITATIONS_PER_HOUR):
            return True
        site = f"@{invitation.site}"  # no address of anybody's
        if not await self._may_invite(site, INVITATIONS_PER_HOUR_OF_A_SITE):
            return True
        return await self._are_suspended(map(user_id, {sender, to.room, to.by}))

    async def _may_invite(self, jid: str, per_hour: int) -> bool:
        """Return whether these are not too many invitations from one address, and count one."""
        return await self._store.users.allow(jid, "invitation", per_hour, 3600.0)

    async def _ask_service(self, invitation: _Invitation) -> None:
        """Go on with an invitation once a service below the inviter's domain has said whether it has rooms."""
        to = invitation.to
        is_vouched = await self._is_group_chat(to.room.rpartition("@")[2]) is True
        while True:
            try:
                await self._decide(msgspec.structs.replace(to, is_vouched=is_vouched))
                await self._see_off(invitation)
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def _decide(self, event: Invited) -> None:
        """Follow an invitation, or say why not: to whoever is named only if it is surely they."""
        by = event.by
        speaker = voice((await self._store.users.get(by)).habits.speaks if event.is_vouched else "")
        if not event.is_vouched and not self._door.is_open:
            self._decline(event, excuse("not vouched for", event.room, speaker))
        elif not await self._door.admits(by):
            self._decline(event, NotAdmitted().text(speaker.language))
        elif not (event.through and event.is_vouched) or await self._may_invite(by, INVITATIONS_PER_HOUR):
            _log.info("invited", room=event.room, by=by, is_vouched=event.is_vouched)
            await self._accept(event)

    async def _accept(self, event: Invited) -> None:
        """Go there, or have the bot do that which serves the room."""
        room, address = event.room, self._link.address
        if self._is_ours(room):
            self._plan(self._visits.invited(event, self._clock.monotonic_s()))
            return
        accepted = msgspec.structs.replace(event, is_accepted=True)
        said = Said(room, event.by, "", "", "", wants_receipt=False, invited=accepted)
        await self._store.heard.put([Sentence(room, "", msgspec.msgpack.encode(said), address)])
        await self._store.heard.notify([Notice(user_id(room))])

    def _decline(self, event: Invited, words: str) -> None:
        """Tell who invited us why we do not come: through the room, and directly if it is surely them."""
        address = self._link.address
        if event.through:
            self._link.hint(muc.declining(address, event.room, event.through, words))
        if event.is_vouched:
            ident = fresh_id(user_id(event.by))
            self._link.hint(stanzas.message(address, event.by, ident, stanzas.payload(words)))

    async def _check(self, room: str) -> None:
        """Have a room's address say whether it is a group chat; if it says nothing clear, its domain."""
        is_group_chat = await self._is_group_chat(room)
        if is_group_chat is None and await self._is_group_chat(room.rpartition("@")[2]) is False:
            is_group_chat = False
        self._plan(self._visits.checked(room, is_group_chat=is_group_chat))

    async def _is_group_chat(self, jid: str) -> bool | None:
        """Return what an address says that it is, None if it says nothing clear."""
        answer = await self._asked(jid, muc.QUESTION, ANSWERS_WITHIN_S)
        return None if answer is None else muc.is_group_chat(answer)

    async def _asked(self, jid: str, question: str, within_s: float) -> Element | None:
        """Return the answer of an address, None if there is none in time."""
        try:
            async with asyncio.timeout(within_s):
                return await self._link.ask(jid, "get", question)
        except (TimeoutError, LinkLost):
            return None

    async def _are_suspended(self, people: Iterable[UserId]) -> bool:
        """Return whether any of these is suspended; "" is nobody."""
        return bool(await self._store.users.suspended(set(people) - {""}))

    async def _leave_suspended(self) -> None:
        """Leave the rooms behind which somebody is who was suspended meanwhile; they are looked at again later."""
        rooms = self._visits.people()
        with contextlib.suppress(StoreUnavailable):
            suspended = await self._store.users.suspended(frozenset[UserId]().union(*rooms.values()))
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
        await self._store.heard.at_home([room], self._link.address)
        known = await self._store.users.get(room)
        if not known.welcomed:
            await self._store.users.mark(room, welcomed=True)
            content = stanzas.payload(in_a_room(kept.nick, voice(known.habits.speaks)))
            ident = fresh_id(user_id(room))
            self._link.hint(stanzas.message(self._link.address, room, ident, content, kind="groupchat"))
        self._plan(self._visits.settled(room))
        if deed.is_new:
            await self._bookmarked(muc.bookmark(room, kept.nick))

    async def _give_up(self, room: str) -> None:
        _log.info("out of a room", room=room)
        await RequestHandler(self._house, room).forget_everything()
        await self._store.rooms.drop(self._link.address, room)
        self._begin(self._forget_address(room))
        await self._bookmarked(muc.no_bookmark(room))

    async def _forget_address(self, room: str) -> None:
        """Take a room's address for a person's again, once nothing is under way that its occupants sent us.

        A room answers in order: what they sent before we left comes before its answer.
        """
        if room in self._link.rooms:
            await self._asked(room, muc.QUESTION, ANSWERS_WITHIN_S)
        if not self._visits.is_visited(room):
            self._link.rooms.discard(room)

    async def _bookmarked(self, request: str) -> None:
        """Keep our account's bookmarks (XEP-0402) as our rooms are: for people who look after the account."""
        if self._link.is_account:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PING_WITHIN_S):
                    await self._link.ask(self._link.address, "set", request)

    async def _still_in(self, room: str, nick: str) -> None:
        answer = await self._asked(f"{room}/{nick}", "<ping xmlns='urn:xmpp:ping'/>", PING_WITHIN_S)
        if answer is None:
            return
        condition = bounces.condition_of(answer) if answer.get("type") == "error" else ""
        if condition and condition not in _STILL_IN | _UNCLEAR:
            self._visits.lost(room, self._clock.monotonic_s())
