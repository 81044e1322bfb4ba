"""The port between Coronet's chat side and XMPP: what comes in, and how to send. No slixmpp here."""

import asyncio
from collections.abc import Sequence
from typing import Protocol
from xml.etree.ElementTree import Element

import msgspec

from service.errors import OperationalError


class LinkLost(OperationalError):
    """The session with the XMPP server ended before it confirmed what was sent."""

    code = "link-lost"


class Said(msgspec.Struct, frozen=True):
    """A person wrote to us. ``jid`` is bare and decides what they may; ``sender`` is where to answer.

    ``language`` is the tag of what their client speaks (xml:lang), "" if it says nothing.
    """

    jid: str
    sender: str
    id: str
    text: str
    thread: str
    wants_receipt: bool
    language: str = ""


class Ordered(msgspec.Struct, frozen=True):
    """A person's software goes on with an ad-hoc command (XEP-0050); ``values`` are what they filled in, by field.

    ``id`` is that of the stanza, ``session`` empty at the beginning; ``language`` is what their software speaks.
    """

    jid: str
    sender: str
    id: str
    node: str
    action: str
    session: str
    values: dict[str, tuple[str, ...]]
    language: str


class Receipt(msgspec.Struct, frozen=True):
    """A person's client has the message (XEP-0184)."""

    jid: str
    message_id: str


class Bounced(msgspec.Struct, frozen=True):
    """A message came back; ``condition`` is the name of RFC 6120 §8.3.3."""

    jid: str
    message_id: str
    condition: str


class Seen(msgspec.Struct, frozen=True):
    """The person is there: one of their clients is online."""

    jid: str


class Absent(msgspec.Struct, frozen=True):
    """None of the person's clients is online any more."""

    jid: str


class Started(msgspec.Struct, frozen=True):
    """A new session began (not a resumed one): what the old one had not confirmed may be lost."""


Event = Said | Ordered | Receipt | Bounced | Seen | Absent | Started


class Link(Protocol):
    """A way to the XMPP server that comes and goes."""

    up: asyncio.Event
    """Set while there is a session."""
    address: str
    """What we send as."""

    async def send(self, stanzas: Sequence[str]) -> None:
        """Write stanzas in order and return when the server has them all. Raises :class:`LinkLost`."""
        ...

    def hint(self, stanza: str) -> None:
        """Write a stanza whose loss does not matter; does nothing without a session."""
        ...


class AskingLink(Link, Protocol):
    """A link through which we can ask, too."""

    async def ask(self, to: str, kind: str, content: str) -> Element:
        """Send a request ("get" or "set") and return the answer, be it a result or an error. Raises :class:`LinkLost`.

        Bound the time by yourself: others may never answer.
        """
        ...
