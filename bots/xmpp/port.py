"""The port between Coronet's chat side and XMPP: what comes in, and how to send. No slixmpp here."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Protocol
from xml.etree.ElementTree import Element

import msgspec

from service.errors import OperationalError
from service.model import UserId


class LinkLost(OperationalError, code="link-lost"):
    """The session with the XMPP server ended before it confirmed what was sent."""


class Invited(msgspec.Struct, frozen=True):
    """Somebody wants us in a room. ``through``: whom the room calls the inviter, "" if they have said so themselves.

    ``by`` is bare: the room itself, if it hides who it is. ``is_vouched``: their own server says
    that it is they. ``is_accepted``: the bot that was brought the invitation has found that it is to be followed.
    """

    room: str
    by: str
    password: str
    through: str = ""
    is_vouched: bool = False
    is_accepted: bool = False


class Said(msgspec.Struct, frozen=True):
    """A person wrote to us. ``jid`` is bare and decides what they may; ``sender`` is where to answer.

    Their client may want to know when it has come (a receipt), and when it was read (a marker).
    ``language`` is the tag of what their client speaks (xml:lang), "" if it says nothing. ``points_at`` is the id of
    the message that it was written under, ``reacted`` says that it stands for a reaction to that.

    In a room ``jid`` is the room, and ``sender`` who spoke there, ``aloud`` or to us alone; ``may_change`` says whether
    they may change what the room is told, and ``occupant`` is what the room calls them whatever their nick (XEP-0421),
    or else their nick; "" outside of rooms. ``token`` names these words for all bots that the server may bring them to,
    "" if that is only us. ``at_s`` is when it was said (Unix s) if it was kept for us meanwhile, 0 if it is said now.
    Unless None, ``invited`` is what it means, and there are no words: ``jid`` is who sent that, a room or a person, or,
    once it is accepted, the room. ``is_private``: a room passed it on to us alone (XEP-0045 §7.5). ``person``, in a
    room, is who they are, "" if the room hides that.
    """

    jid: str
    sender: str
    id: str
    text: str
    thread: str
    wants_receipt: bool
    language: str = ""
    points_at: str = ""
    reacted: bool = False
    aloud: bool = False
    may_change: bool = True
    token: str = ""
    occupant: str = ""
    wants_marker: bool = False
    at_s: float = 0.0
    invited: Invited | None = None
    is_private: bool = False
    person: UserId = ""


class SaidInRoom(msgspec.Struct, frozen=True):
    """Somebody, perhaps ourselves, spoke in a room, to whomever; the rest as in :class:`Said`.

    ``room_id`` is how the room calls the message, "" if it does not (XEP-0359).
    """

    room: str
    nick: str
    id: str
    room_id: str
    text: str
    language: str
    points_at: str
    reacted: bool
    occupant: str = ""


class InRoom(msgspec.Struct, frozen=True):
    """Somebody, perhaps ourselves, came into a room (or was there), changed there, or left; ``statuses`` say how.

    ``destroyed``: the room is no more. ``jid`` is their bare JID, "" if the room hides it.
    """

    room: str
    nick: str
    affiliation: str
    present: bool
    statuses: frozenset[str]
    destroyed: bool
    jid: str = ""


class RoomRefused(msgspec.Struct, frozen=True):
    """A room does not let us in; ``condition`` as in :class:`Bounced`."""

    room: str
    condition: str


class Ordered(msgspec.Struct, frozen=True):
    """A person's software goes on with an ad-hoc command (XEP-0050); ``values`` are what they filled in, by field.

    ``id`` is that of the stanza, ``session`` empty at the beginning; ``language`` is what their software speaks.
    ``voice``, unless empty, is that of the bot that has to answer.
    """

    jid: str
    sender: str
    id: str
    node: str
    action: str
    session: str
    values: dict[str, tuple[str, ...]]
    language: str
    voice: str = ""


class Receipt(msgspec.Struct, frozen=True):
    """A person's client has the message (XEP-0184); ``is_marker``: it says so by marking it (XEP-0333)."""

    jid: str
    message_id: str
    is_marker: bool = False


class Bounced(msgspec.Struct, frozen=True):
    """A message came back; ``condition`` is the name of RFC 6120 §8.3.3.

    ``resource`` is that of who says so: in a room, an occupant.
    """

    jid: str
    message_id: str
    condition: str
    resource: str = ""


class Seen(msgspec.Struct, frozen=True):
    """The person is there: one of their clients is online.

    ``is_free``: at one of them they are neither away nor busy; None if we have seen them by something else than this.
    ``is_new_client``: this client was not online before, as far as we know.
    """

    jid: str
    is_free: bool | None = None
    is_new_client: bool = False


class Absent(msgspec.Struct, frozen=True):
    """None of the person's clients is online any more."""

    jid: str


class Wrote(msgspec.Struct, frozen=True):
    """One of somebody's clients has written to us, or carries out a command."""

    jid: str
    resource: str


class PresenceChanged(msgspec.Struct, frozen=True):
    """One of somebody's clients came online, changed its presence, or went offline; "" as resource means all of them.

    ``is_free``: it is online, and neither away nor busy.
    """

    jid: str
    resource: str
    is_online: bool
    is_free: bool


class Started(msgspec.Struct, frozen=True):
    """A new session began (not a resumed one): what the old one had not confirmed may be lost."""


Event = Said | SaidInRoom | Ordered | InRoom | RoomRefused | Receipt | Bounced | Wrote | PresenceChanged | Started


class Link(Protocol):
    """A way to the XMPP server that comes and goes."""

    up: asyncio.Event
    """Set while there is a session."""
    is_account: bool
    """Whether we are an account of the server's, which keeps things for us."""
    address: str
    """What we send as."""
    voice: str
    """Where what is said to us comes to this very session: our full JID, if we are an account."""
    rooms: set[str]
    """Where we speak to all at once; whoever is in the rooms keeps it."""

    async def send(self, stanzas: Sequence[str]) -> None:
        """Write stanzas in order and return when the server has them all. Raises :class:`LinkLost`."""
        ...

    def hint(self, stanza: str) -> None:
        """Write a stanza whose loss does not matter; does nothing without a session."""
        ...


async def send_in_any_session(link: Link, stanzas: Sequence[str]) -> None:
    """Send stanzas in this session, or in the next one if it ends before the server has them."""
    while True:
        await link.up.wait()
        with contextlib.suppress(LinkLost):
            await link.send(stanzas)
            return


class AskingLink(Link, Protocol):
    """A link through which we can ask, too."""

    def silent_s(self) -> float:
        """Return for how long (s) nothing has come in; what came before that was handed out."""
        ...

    async def ask(self, to: str, kind: str, content: str) -> Element:
        """Send a request ("get" or "set") and return the answer, be it a result or an error. Raises :class:`LinkLost`.

        Bound the time by yourself: others may never answer.
        """
        ...

    async def search(self, since_s: float, after: str, most: int) -> tuple[list[Element], Element]:
        """Return what our account's archive (XEP-0313) has since a moment (Unix s), at most so many, and its answer.

        ``after`` is the archive's id of where to go on, "" for the beginning. Raises :class:`LinkLost`.
        """
        ...

    async def lay_to_rest(self, session: str) -> None:
        """End what is left of a session of our account that died: nothing it wrote is handled after that."""
        ...
