"""An XMPP client for tests: it sends commands, keeps all received messages, and reconnects automatically.

It supports STARTTLS, stream management (XEP-0198), receipts (XEP-0184) and presence. Every command has a new
``<thread>``, in which the bot answers (RFC 6121 §5.2.5), so that answers are distinguished from notifications.
"""

import asyncio
import contextlib
import hashlib
import ssl
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from slixmpp import ClientXMPP
from slixmpp.util.sasl.mechanisms import SCRAM

RECONNECT_S = 0.3
"""Delay between two connection attempts."""
_DELAY = "{urn:xmpp:delay}delay"


def _salted_password(mechanism: Any, password: Any, salt: bytes, iterations: int) -> bytes:
    """Return Hi(password, salt, iterations) of RFC 5802 §2.2, which takes slixmpp 30 ms."""
    return hashlib.pbkdf2_hmac(mechanism.hash().name, bytes(password), salt, iterations)


SCRAM.Hi = _salted_password  # type: ignore[method-assign,assignment]  # the signature is wrong in slixmpp


@dataclass(frozen=True)
class Received:
    """A received message with a body; ``at_s`` is the Unix time of arrival.

    ``replaces`` is the id of the message that this message corrects (XEP-0308), ``file`` the URL of an attached file
    (XEP-0066), and ``stamp`` the time at which the message was first sent (XEP-0203); each is "" if absent.
    ``resource`` is the resource of the sender.
    """

    id: str
    sender: str
    body: str
    at_s: float
    thread: str
    replaces: str = ""
    resource: str = ""
    file: str = ""
    stamp: str = ""


class ChatClient:
    """The client of one account.

    ``received`` has all messages in order of arrival, including repetitions; ``unique`` has the first of each message
    id. :meth:`start` returns when the account is online.
    """

    def __init__(self, jid: str, password: str, host: str, port: int, bot_jid: str, *, resource: str = "test") -> None:
        self.jid = jid
        self.bot_jid = bot_jid
        self.received: list[Received] = []
        self.online = asyncio.Event()
        self._address = (host, port)
        self._offline = asyncio.Event()
        self._news = asyncio.Condition()
        self._xmpp = self._stream(f"{jid}/{resource}", password)
        self._keeper: asyncio.Task[None] | None = None

    def _stream(self, full_jid: str, password: str) -> ClientXMPP:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without this machine's authorities, which take time to load
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # the private server's certificate is self-signed
        stream = ClientXMPP(full_jid, password, ssl_context=context)
        stream.enable_direct_tls = False
        for plugin in ("xep_0030", "xep_0184", "xep_0198", "xep_0199", "xep_0308"):
            stream.register_plugin(plugin)
        stream.add_event_handler("session_start", self._on_session_started)
        stream.add_event_handler("session_resumed", self._on_session_resumed)
        for event in ("disconnected", "connection_failed", "failed_all_auth"):
            stream.add_event_handler(event, self._on_disconnected)
        stream.add_event_handler("message", self._on_message)
        return stream

    @property
    def unique(self) -> list[Received]:
        """The messages without repeated message ids."""
        return list({message.id: message for message in reversed(self.received)}.values())[::-1]

    @property
    def notifications(self) -> list[Received]:
        """The messages in ``unique`` that are not answers to commands."""
        return [message for message in self.unique if not message.thread]

    async def start(self, timeout_s: float = 20.0) -> "ChatClient":
        """Go online, and reconnect automatically until :meth:`stop`."""
        self._keeper = asyncio.create_task(self._stay_online())
        await asyncio.wait_for(self.online.wait(), timeout_s)
        return self

    async def stop(self) -> None:
        """Go offline."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self._xmpp.cancel_connection_attempt()
        await self._xmpp.disconnect(wait=1.0, ignore_send_queue=True)
        sender = self._xmpp._run_out_filters
        if sender is not None:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    def send_raw(self, stanza: str) -> None:
        """Write a stanza unchanged, even an invalid one."""
        self._xmpp.send_raw(stanza)

    async def vanish(self) -> None:
        """Abort the connection, so that the server waits for a resumption; :meth:`start` reconnects."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self._xmpp.abort()
        self.online.clear()

    def give_receipts(self, *, willing: bool) -> None:
        """Enable or disable receipts (XEP-0184)."""
        self._xmpp.plugin["xep_0184"].auto_ack = willing

    async def befriend(self) -> None:
        """Request a presence subscription, like adding the bot as a contact."""
        self._xmpp.send_presence_subscription(pto=self.bot_jid)

    @property
    def sees_the_bot(self) -> str:
        """The state of the presence subscription: "both", "to", "from" or "none"."""
        return str(self._xmpp.client_roster[self.bot_jid]["subscription"])

    def send(self, text: str, *, thread: str = "") -> str:
        """Send one chat message without waiting; return its id."""
        message = self._xmpp.make_message(mto=self.bot_jid, mbody=text, mtype="chat")
        message["id"] = uuid.uuid4().hex
        if thread:
            message["thread"] = thread
        message.send()
        return str(message["id"])

    async def say(self, text: str, timeout_s: float = 20.0) -> str:
        """Send a command and return the text of the bot's answer."""
        await asyncio.wait_for(self.online.wait(), timeout_s)
        thread = uuid.uuid4().hex
        self.send(text, thread=thread)
        return (await self.wait_for(lambda message: message.thread == thread, timeout_s)).body

    async def wait_for(self, wanted: Callable[[Received], bool], timeout_s: float = 20.0) -> Received:
        """Return the first past or future message for which ``wanted`` is true; raise TimeoutError if none arrives."""
        try:
            async with asyncio.timeout(timeout_s), self._news:
                while True:
                    for message in self.received:
                        if wanted(message):
                            return message
                    await self._news.wait()
        except TimeoutError:
            bodies = [message.body for message in self.received[-5:]]
            raise TimeoutError(f"{self.jid} waited {timeout_s:g} s in vain; last received: {bodies!r}") from None

    async def _stay_online(self) -> None:
        while True:
            self._offline.clear()
            self._xmpp.connect(*self._address)
            await self._offline.wait()
            self.online.clear()
            self._xmpp.cancel_connection_attempt()
            await asyncio.sleep(RECONNECT_S)

    def _on_session_started(self, _event: Any) -> None:
        self._xmpp.send_presence()
        self._xmpp.get_roster()
        self.online.set()

    def _on_session_resumed(self, _event: Any) -> None:
        self.online.set()

    def _on_disconnected(self, _event: Any) -> None:
        self._offline.set()

    def _is_of_bot(self, delay: Any) -> bool:
        return str(delay.get("from", "")).partition("/")[0] == self.bot_jid

    async def _on_message(self, message: Any) -> None:
        if message["type"] not in ("chat", "normal"):
            return
        sender, body = message["from"].bare, message["body"]
        replaced, resource = message["replace"]["id"], message["from"].resource
        file = message.xml.findtext("{jabber:x:oob}x/{jabber:x:oob}url", "")
        stamp = next((each.get("stamp", "") for each in message.xml.iterfind(_DELAY) if self._is_of_bot(each)), "")
        self.received.append(
            Received(message["id"], sender, body, time.time(), message["thread"], replaced, resource, file, stamp)
        )
        async with self._news:
            self._news.notify_all()


@contextlib.asynccontextmanager
async def online(
    jid: str, password: str, host: str, port: int, bot_jid: str, *, resource: str = "test"
) -> AsyncIterator[ChatClient]:
    """Yield an online client; stop it afterwards."""
    client = ChatClient(jid, password, host, port, bot_jid, resource=resource)
    try:
        yield await client.start()
    finally:
        await client.stop()
