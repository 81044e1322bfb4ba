"""The interface through which the bot sends XMPP stanzas, independent of the library slixmpp.

:class:`bots.xmpp.connection.Connection` implements it; incoming stanzas arrive as :mod:`bots.xmpp.events`.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Protocol
from xml.etree.ElementTree import Element

from service.errors import OperationalError


class XmppSessionLost(OperationalError, code="xmpp-session-lost"):
    """The session with the XMPP server ended before the server confirmed that it had received all sent stanzas."""


class XmppSender(Protocol):
    """Sends stanzas to an XMPP server through a session.

    The session may end at any time; a new session then replaces it.
    """

    connected: asyncio.Event
    """Set while there is a session."""
    is_account: bool
    """Whether the bot logs in as an account, for which the server stores messages, rather than as a component."""
    address: str
    """Bare JID of the bot."""
    session_jid: str
    """JID that reaches this very session: the full JID of an account, the address of a component."""
    rooms: set[str]
    """Bare JIDs of the group chats that the bot has joined or is joining. :class:`bots.rooms.room_client.RoomClient`
    updates them."""

    async def send(self, stanzas: Sequence[str]) -> None:
        """Send stanzas in the given order; return when the server has confirmed all of them.

        Raises :class:`XmppSessionLost` if the session ends before that.
        """
        ...

    def send_unconfirmed(self, stanza: str) -> None:
        """Send a stanza that may be lost, without waiting for a confirmation; drop it if there is no session."""
        ...


async def send_until_confirmed(xmpp: XmppSender, stanzas: Sequence[str]) -> None:
    """Send stanzas. If the session ends before the server confirms them, send all of them again in the next session."""
    while True:
        await xmpp.connected.wait()
        with contextlib.suppress(XmppSessionLost):
            await xmpp.send(stanzas)
            return


class XmppClient(XmppSender, Protocol):
    """A sender that can also send requests (IQ stanzas) and read the account's message archive."""

    presence_content: str
    """The content of every available presence of the bot."""

    def idle_s(self) -> float:
        """Return the seconds since the last stanza was received and passed to the event handler."""
        ...

    async def request(self, to: str, kind: str, content: str) -> Element:
        """Send an IQ request and return the response, whether a result or an error.

        ``kind`` is "get" or "set"; ``content`` is the XML payload. Raises :class:`XmppSessionLost` if the session ends
        before the response arrives. Callers must set a timeout, because the other side may never respond.
        """
        ...

    async def query_archive(self, since_s: float, after_id: str, limit: int) -> tuple[list[Element], Element]:
        """Return (messages, end): one page of the account's message archive (XEP-0313).

        ``messages`` contains at most ``limit`` messages; ``end`` is the stanza that follows them. The page begins after
        the message with the archive id ``after_id``, or at ``since_s`` (Unix s) if ``after_id`` is "". Raises
        :class:`XmppSessionLost` if the session ends before the page is complete.
        """
        ...

    async def terminate_session(self, session: str) -> None:
        """End another session of this account, if the server still keeps it; do nothing if the bot is a component.

        ``session`` is the name (resource) under which another process opened the session. Once this method returns, the
        server processes no more stanzas from that session. Raises TimeoutError if the server does not respond.
        """
        ...
