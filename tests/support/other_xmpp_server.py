"""Another XMPP server: a component that sends and receives for every address of its domain."""

import asyncio
from collections.abc import Callable
from typing import Any, Self
from xml.sax.saxutils import quoteattr

from slixmpp import ComponentXMPP

from tests.support.prosody import SECRET
from tests.support.waiting import until_so

GROUP_CHAT = (
    "<query xmlns='http://jabber.org/protocol/disco#info'><identity category='conference' type='text'/>"
    "<feature var='http://jabber.org/protocol/muc'/></query>"
)
"""Response of a room, or of a service with rooms, to service discovery (XEP-0030)."""
_MUC_USER = "http://jabber.org/protocol/muc#user"
_DISCO_INFO = "{http://jabber.org/protocol/disco#info}query"


class OtherServer:
    """One server, which responds to service discovery by ``information`` (JID → payload) and to nothing else."""

    def __init__(self, domain: str, port: int, bot_jid: str) -> None:
        self.domain = domain
        self.information: dict[str, str] = {}
        self.received: list[Any] = []
        self.bot = bot_jid
        self._ready = asyncio.Event()
        self._stream = ComponentXMPP(domain, SECRET, "127.0.0.1", port)  # type: ignore[no-untyped-call] # slixmpp left it untyped
        self._stream.add_filter("in", self._on_stanza)
        self._stream.add_event_handler("session_start", lambda _: self._ready.set())

    async def __aenter__(self) -> Self:
        self._stream.connect()
        await asyncio.wait_for(self._ready.wait(), 20)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stream.disconnect(wait=1.0, ignore_send_queue=True)
        sender = self._stream._run_out_filters
        if sender is not None:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    def _on_stanza(self, stanza: Any) -> Any:
        element = getattr(stanza, "xml", None)
        if element is None or not element.tag.endswith(("message", "presence", "iq")):
            return stanza
        self.received.append(element)
        payload = self.information.get(element.get("to", ""))
        if element.get("type") == "get" and element.find(_DISCO_INFO) is not None and payload:
            whom = f"from={quoteattr(element.get('to'))} to={quoteattr(element.get('from'))}"
            self.send(f"<iq {whom} id={quoteattr(element.get('id'))} type='result'>{payload}</iq>")
        return None

    def send(self, stanza: str) -> None:
        """Write a stanza unchanged."""
        self._stream.send_raw(stanza)

    async def gets(self, wanted: Callable[[Any], object], what: str) -> Any:
        """Wait for a stanza for which ``wanted`` is true, and return it; ``what`` describes it in the error message."""
        await until_so(lambda: any(map(wanted, self.received)), what)
        return next(filter(wanted, self.received))

    async def is_entered(self, room: str) -> Any:
        """Wait until the bot joins a room; return the presence. Later stanzas are sent to the session that joined."""
        entering = await self.gets(
            lambda one: one.tag.endswith("presence") and one.get("to", "").startswith(f"{room}/"), f"it enters {room}"
        )
        self.bot = entering.get("from")
        return entering

    async def hears(self, room: str, words: str) -> None:
        """Wait until the bot sends a message that contains ``words`` to all occupants of a room."""
        await self.gets(lambda one: one.get("to") == room and words in (one.findtext("{*}body") or ""), f"{words!r}")

    async def hears_decline(self) -> None:
        """Wait until the bot declines an invitation through the room."""
        await self.gets(lambda one: one.find(f"{{{_MUC_USER}}}x/{{{_MUC_USER}}}decline") is not None, "it declines")

    def invite(self, room: str, by: str) -> None:
        """Send an invitation of the bot by a room, with ``by`` as the inviter."""
        invitation = f"<x xmlns='{_MUC_USER}'><invite from={quoteattr(by)}/></x>"
        self.send(f"<message from={quoteattr(room)} to={quoteattr(self.bot)}>{invitation}</message>")

    def say(self, sender: str, text: str, kind: str = "chat") -> None:
        """Send a message of type ``kind`` from ``sender`` to the bot."""
        whom = f"from={quoteattr(sender)} to={quoteattr(self.bot)}"
        self.send(f"<message {whom} type='{kind}'><body>{text}</body></message>")

    async def is_refused(self, sender: str, node: str) -> bool:
        """Execute the ad-hoc command ``node`` (XEP-0050) as ``sender``; return whether the response is an error."""
        command = f"<command xmlns='http://jabber.org/protocol/commands' node='{node}' action='execute'/>"
        whom = f"from={quoteattr(sender)} to={quoteattr(self.bot)}"
        self.send(f"<iq {whom} type='set' id='{node}'>{command}</iq>")
        answer = await self.gets(lambda one: one.get("id") == node, "the answer to the command")
        return bool(answer.get("type") == "error")

    def show(self, occupant: str, affiliation: str = "none", *statuses: str, jid: str = "") -> None:
        """Send the presence of a room's occupant to the bot; status 110 means the bot itself."""
        self.send(presence(occupant, self.bot, affiliation, *statuses, jid=jid))

    def refuse(self, entering: Any, condition: str) -> None:
        """Respond to the presence ``entering`` with an error, so that the bot does not join the room."""
        whom = f"from={quoteattr(entering.get('to'))} to={quoteattr(entering.get('from'))}"
        error = f"<error type='auth'><{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
        self.send(f"<presence {whom} type='error'><x xmlns='http://jabber.org/protocol/muc'/>{error}</presence>")


def presence(sender: str, to: str, affiliation: str, *statuses: str, jid: str = "") -> str:
    """Return the presence of an occupant, as a room sends it."""
    item = f"<item affiliation='{affiliation}' role='moderator'{f' jid={quoteattr(jid)}' if jid else ''}/>"
    codes = "".join(f"<status code='{status}'/>" for status in statuses)
    x = f"<x xmlns='{_MUC_USER}'>{item}{codes}</x>"
    return f"<presence from={quoteattr(sender)} to={quoteattr(to)}>{x}</presence>"
