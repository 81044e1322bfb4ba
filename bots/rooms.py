"""Rooms: carries out what :mod:`bots.visits` decides, and brings what is said there to the desk.

A room is a person with many mouths: what it follows is kept under its own address, and whoever is one of its owners
or admins may change that. What the room gives back of our own words is their receipt.
"""

import asyncio
import contextlib
from typing import Final

import msgspec
import structlog

from bots import bounces, introduction, muc, stanzas
from bots.asking import ForgetEverything
from bots.charges import Charges
from bots.delivery import Delivery
from bots.desk import Desk
from bots.door import Door
from bots.exchange import NotAdmitted
from bots.house import House
from bots.ids import fresh_id, is_batch
from bots.link import AskingLink, Bounced, InRoom, Invited, LinkLost, Receipt, RoomRefused, Said, SaidInRoom, Seen
from bots.replies.talking import in_a_room, kept_out, not_admitted, who_is_it
from bots.verbs import LEAVE
from bots.visits import Deed, Enter, Excuse, GiveUp, Inside, Keep, Leave, Settle, Visits
from bots.voice import voice
from service.clock import Clock
from service.errors import StoreUnavailable
from service.store import Store
from service.store.heard import Place, Sentence
from service.store.keys import user_id
from service.store.rooms import Room

INVITATIONS_PER_HOUR: Final = 10
PING_EVERY_S: Final = 300.0
"""How often we ask each room whether we are still in it (XEP-0410)."""
PING_WITHIN_S: Final = 30.0
_LOOK_EVERY_S: Final = 1.0
_RETRY_S: Final = 1.0
_MOST_WAITING: Final = 1_000
_STILL_IN: Final = frozenset(("service-unavailable", "feature-not-implemented", "item-not-found"))
_UNCLEAR: Final = frozenset(("remote-server-not-found", "remote-server-timeout"))
_log = structlog.get_logger()


class _Invitation(msgspec.Struct, frozen=True):
    """What was said, and where that stands in the store, "" if it stands nowhere."""

    said: Said
    to: Invited
    place: Place

    @property
    def is_accepted(self) -> bool:
        """Whether whoever serves the inviter has passed it on to us, who serve the room."""
        return self.said.jid == self.to.room != self.to.by


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
        door: Door,
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
        self._deeds: asyncio.Queue[Deed | _Invitation] = asyncio.Queue()
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
            known = {room: (kept.nick, kept.password) for room, kept in found.items() if self._is_ours(room)}
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
        while True:
            await self._link.up.wait()
            now_s = self._clock.monotonic_s()
            self._plan(self._visits.due(now_s))
            if now_s - self._pinged_s > PING_EVERY_S:
                self._pinged_s = now_s
                await asyncio.gather(*(self._still_in(room, nick) for room, nick in self._visits.inside()))
            deed: Deed | _Invitation | None = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    deed = await self._deeds.get()
            if deed is not None:
                await self._surely(deed)

    # What comes in.

    def started(self) -> None:
        """A session began that continues no earlier one."""
        self._visits.restart(self._clock.monotonic_s())

    def invited(self, said: Said, place: Place) -> None:
        """Somebody wants us in a room; that stands at this place in the store until we have seen to it."""
        if said.invited is not None and (place or self._deeds.qsize() < _MOST_WAITING):
            self._deeds.put_nowait(_Invitation(said, said.invited, place))

    def moved(self, event: InRoom | RoomRefused) -> None:
        """Somebody came or went, or we were not let in."""
        now_s = self._clock.monotonic_s()
        self._plan(self._visits.refused(event) if isinstance(event, RoomRefused) else self._visits.moved(event, now_s))

    def bounced(self, event: Bounced) -> None:
        """What we said came back: to a room that does not know us, we are not in it."""
        if event.condition == "not-acceptable":
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
            self._plan(self._visits.left(event.room))
            return
        text, sender = spoken.text or "help", f"{event.room}/{event.nick}"
        self._desk.hear(
            Said(
                event.room, sender, event.id, text, "", wants_receipt=False, language=event.language,
                points_at=spoken.points_at, reacted=event.reacted, aloud=True, may_change=spoken.may_change,
                occupant=event.occupant,
            )
        )  # fmt: skip

    def whispered(self, said: Said) -> None:
        """Somebody in a room spoke to us alone."""
        nick = said.sender.partition("/")[2]
        if nick and not said.at_s:
            may_change = self._visits.is_manager(said.jid, nick)
            own = msgspec.structs.replace(said, may_change=may_change, wants_receipt=False, occupant=nick)
            self._desk.hear(own)

    # What is done.

    def _plan(self, deeds: list[Deed]) -> None:
        for deed in deeds:
            self._deeds.put_nowait(deed)

    async def _surely(self, deed: Deed | _Invitation) -> None:
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

    async def _do(self, deed: Deed | _Invitation) -> None:
        address = self._link.address
        match deed:
            case _Invitation():
                await self._see_to(deed)
            case Enter(room, nick, password):
                self._link.hint(muc.entering(address, room, nick, password, introduction.PRESENT))
            case Leave(room, nick):
                self._link.hint(muc.leaving(address, room, nick))
            case Settle(room, nick, password):
                await self._settle(room, nick, password)
            case GiveUp(room):
                await self._give_up(room)
            case Excuse(to, room):
                speaks = (await self._store.users.get(to)).habits.speaks
                content = stanzas.payload(kept_out(room, voice(speaks)))
                self._link.hint(stanzas.message(address, to, fresh_id(user_id(to)), content))
            case Inside(room):
                self._delivery.presence(Seen(room))
            case Keep(room, room_id, message_id):
                await self._store.rooms.keep_told(room, room_id, message_id)

    async def _see_to(self, invitation: _Invitation) -> None:
        uid = user_id(invitation.said.jid)
        if invitation.place and not self._charges.holds(uid):
            return  # whoever serves them now has read it
        if invitation.is_accepted:
            self._plan(self._visits.invited(invitation.to, self._clock.monotonic_s()))
        else:
            await self._consider(invitation.to)
        if invitation.place:
            await self._store.heard.done([(uid, invitation.place)])

    async def _consider(self, event: Invited) -> None:
        """Follow an invitation, or say why not, unless too many come from there."""
        if not await self._store.users.allow(event.by, "invitation", INVITATIONS_PER_HOUR, 3600.0):
            return
        known = not event.through or muc.vouches(event.room, event.by)
        speaker = voice((await self._store.users.get(event.by)).habits.speaks)
        if not known and not self._door.is_open:
            self._decline(event, who_is_it(event.room, speaker), known=known)
        elif not await self._door.admits(event.by):
            self._decline(event, not_admitted(NotAdmitted(), speaker), known=known)
        else:
            _log.info("invited", room=event.room, by=event.by)
            await self._accept(event)

    async def _accept(self, event: Invited) -> None:
        """Go there, or have the bot do that which serves the room."""
        room, address = event.room, self._link.address
        if self._is_ours(room):
            self._plan(self._visits.invited(event, self._clock.monotonic_s()))
            return
        said = Said(room, event.by, "", "", "", wants_receipt=False, invited=event)
        await self._store.heard.put([Sentence(room, "", msgspec.msgpack.encode(said), address)], address)
        await self._store.heard.tell([user_id(room)])

    def _decline(self, event: Invited, words: str, *, known: bool) -> None:
        """Tell who invited us why we do not come: through the room, and directly if it is surely them."""
        address = self._link.address
        if event.through:
            self._link.hint(muc.declining(address, event.room, event.through, words))
        if known:
            ident = fresh_id(user_id(event.by))
            self._link.hint(stanzas.message(address, event.by, ident, stanzas.payload(words)))

    async def _settle(self, room: str, nick: str, password: str) -> None:
        self._link.rooms.add(room)
        await self._store.rooms.put(self._link.address, room, Room(nick, password))
        await self._store.heard.at_home([room], self._link.address)
        known = await self._store.users.get(room)
        if not known.welcomed:
            await self._store.users.mark(room, welcomed=True)
            content = stanzas.payload(in_a_room(nick, voice(known.habits.speaks)))
            ident = fresh_id(user_id(room))
            self._link.hint(stanzas.message(self._link.address, room, ident, content, kind="groupchat"))
        await self._bookmarked(muc.bookmark(room, nick))

    async def _give_up(self, room: str) -> None:
        _log.info("out of a room", room=room)
        await self._house.serve(room, ForgetEverything())
        await self._store.rooms.drop(self._link.address, room)
        self._link.rooms.discard(room)
        await self._bookmarked(muc.no_bookmark(room))

    async def _bookmarked(self, request: str) -> None:
        """Keep our account's bookmarks (XEP-0402) as our rooms are: for people who look after the account."""
        if self._link.is_account:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PING_WITHIN_S):
                    await self._link.ask(self._link.address, "set", request)

    async def _still_in(self, room: str, nick: str) -> None:
        try:
            async with asyncio.timeout(PING_WITHIN_S):
                answer = await self._link.ask(f"{room}/{nick}", "get", "<ping xmlns='urn:xmpp:ping'/>")
        except (TimeoutError, LinkLost):
            return
        condition = bounces.condition_of(answer) if answer.get("type") == "error" else ""
        if condition and condition not in _STILL_IN | _UNCLEAR:
            self._visits.lost(room, self._clock.monotonic_s())
