"""A user in a group chat: opens the room, invites, writes, and keeps all messages."""

import uuid
from typing import Any
from xml.sax.saxutils import quoteattr

from slixmpp import JID

from tests.support.chat import ChatClient
from tests.support.waiting import until_so


class Guest:
    """A user in a room, with the messages received there."""

    def __init__(self, client: ChatClient, room: str, nick: str) -> None:
        self.room, self.nick = room, nick
        self._at = JID(room)
        self.heard: list[tuple[str, str]] = []
        self.ids: dict[str, str] = {}
        """The room's message ids, by text."""
        self.client = client
        self._xmpp = client._xmpp
        self._xmpp.register_plugin("xep_0045")
        self._xmpp.register_plugin("xep_0359")
        self._xmpp.add_event_handler("groupchat_message", self._on_message)

    def _on_message(self, message: Any) -> None:
        if message["from"].bare == self.room:
            self.heard.append((message["from"].resource, message["body"]))
            self.ids[message["body"]] = message["stanza_id"]["id"]

    async def enter(self) -> "Guest":
        """Join the room."""
        await self._xmpp.plugin["xep_0045"].join_muc_wait(self._at, self.nick, maxstanzas=0, timeout=10)
        return self

    async def open(self, *, shows_addresses: bool = False) -> "Guest":
        """Create the room as its owner; with ``shows_addresses``, all occupants see each other's JIDs."""
        await self.enter()
        muc = self._xmpp.plugin["xep_0045"]
        form: Any = await muc.get_room_config(self._at)
        form["type"] = "submit"
        if shows_addresses:
            form.get_fields()["muc#roomconfig_whois"]["value"] = "anyone"
        await muc.set_room_config(self._at, form)
        return self

    def say(self, text: str) -> None:
        """Send a message to all occupants."""
        self._xmpp.send_message(self._at, text, mtype="groupchat")

    def reply(self, told: str, text: str) -> None:
        """Reply to the message with the text ``told`` (XEP-0461)."""
        under = f"<reply xmlns='urn:xmpp:reply:0' id='{self.ids[told]}'/>"
        self._xmpp.send_raw(f"<message to='{self.room}' type='groupchat'><body>{text}</body>{under}</message>")

    def say_as(self, nick: str, text: str) -> None:
        """Request another nick and send a message, without waiting for the response of the room."""
        self._xmpp.send_raw(f"<presence to={quoteattr(f'{self.room}/{nick}')}/>")
        self._xmpp.send_raw(f"<message to='{self.room}' type='groupchat'><body>{text}</body></message>")

    def invite(self, jid: str, *, direct: bool = False) -> None:
        """Invite a user through the room (mediated) or directly."""
        if direct:
            inside = f"<x xmlns='jabber:x:conference' jid='{self.room}'/>"
            self._xmpp.send_raw(f"<message to='{jid}' id='{uuid.uuid4().hex}'>{inside}</message>")
        else:
            self._xmpp.plugin["xep_0045"].invite(self._at, JID(jid))

    async def hears(self, words: str, *, times: int = 1) -> str:
        """Wait for ``times`` messages that contain ``words``; return the text of the newest one."""
        await until_so(lambda: len([text for _, text in self.heard if words in text]) >= times, f"{words!r} is heard")
        return next(text for _, text in reversed(self.heard) if words in text)

    def roster(self) -> list[str]:
        """Return the nicks of the occupants of the room."""
        return list(self._xmpp.plugin["xep_0045"].get_roster(self._at))
