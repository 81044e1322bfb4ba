"""A foreign server whose users and group chats send arbitrary stanzas, to impersonate others."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from xml.sax.saxutils import quoteattr

from slixmpp import ComponentXMPP, Iq, Message, Presence

from service.embedded.private_prosody import PrivateProsody
from tests.support.prosody import SECRET, STRANGERS

ROOM = f"fake@{STRANGERS}"
"""An address that pretends to be a group chat."""


class Strangers:
    """The foreign server, connected as a component; ``messages`` has (recipient, text) of received messages."""

    def __init__(self, server: PrivateProsody) -> None:
        self.messages: list[tuple[str, str]] = []
        self.entered = asyncio.Event()
        self._ready = asyncio.Event()
        self._component = ComponentXMPP(STRANGERS, SECRET, "127.0.0.1", server.component_port)  # type: ignore[no-untyped-call] # slixmpp left it untyped
        self._component.add_filter("in", self._receive)
        self._component.add_event_handler("session_start", lambda _: self._ready.set())

    async def start(self) -> None:
        """Connect."""
        self._component.connect()
        await asyncio.wait_for(self._ready.wait(), 20)

    async def stop(self) -> None:
        """Disconnect."""
        await self._component.disconnect(wait=1.0, ignore_send_queue=True)
        sender = self._component._run_out_filters
        if sender is not None:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    def send(self, stanza: str) -> None:
        """Write a stanza unchanged."""
        self._component.send_raw(stanza)

    def say(self, sender: str, to: str, body: str) -> None:
        """Send a chat message that claims to be from ``sender``."""
        self.send(f"<message from={quoteattr(sender)} to='{to}' type='chat'><body>{body}</body></message>")

    def say_in_room(self, to: str, nick: str, occupant: str, body: str) -> None:
        """Send a group chat message of an occupant (nick and occupant id) of the pretended room."""
        named = f"<occupant-id xmlns='urn:xmpp:occupant-id:0' id={quoteattr(occupant)}/>"
        self.send(f"<message from='{ROOM}/{nick}' to='{to}' type='groupchat'><body>{body}</body>{named}</message>")

    def _receive(self, stanza: Any) -> Any:
        if isinstance(stanza, Message):
            self.messages.append((stanza.xml.get("to", ""), stanza.xml.findtext("{*}body") or ""))
            return None
        if isinstance(stanza, Presence) and stanza.xml.get("to", "").startswith(f"{ROOM}/"):
            self._let_in(stanza.xml)
            return None
        if isinstance(stanza, Iq) and stanza.xml.find("{http://jabber.org/protocol/disco#info}query") is not None:
            self._describe(stanza.xml)
            return None
        return stanza

    def _let_in(self, presence: Any) -> None:
        to, me = presence.get("from"), presence.get("to")
        if presence.get("type") is not None:
            return
        for occupant, affiliation, status in ((f"{ROOM}/alice", "owner", ""), (me, "none", "<status code='110'/>")):
            item = f"<item affiliation='{affiliation}' role='participant'/>"
            inside = f"<x xmlns='http://jabber.org/protocol/muc#user'>{item}{status}</x>"
            self.send(f"<presence from='{occupant}' to='{to}'>{inside}</presence>")
        self.entered.set()

    def _describe(self, iq: Any) -> None:
        """Respond to a service discovery request like a group chat."""
        identity = "<identity category='conference' type='text'/><feature var='http://jabber.org/protocol/muc'/>"
        query = f"<query xmlns='http://jabber.org/protocol/disco#info'>{identity}</query>"
        back = f"from={quoteattr(iq.get('to'))} to={quoteattr(iq.get('from'))} id={quoteattr(iq.get('id', ''))}"
        self.send(f"<iq type='result' {back}>{query}</iq>")


@contextlib.asynccontextmanager
async def strangers(server: PrivateProsody) -> AsyncIterator[Strangers]:
    """Run the foreign server."""
    others = Strangers(server)
    try:
        await others.start()
        yield others
    finally:
        await others.stop()
