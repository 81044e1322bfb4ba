"""One session with an XMPP server, kept up, as component or as client.

What comes in is turned into the events of :mod:`bots.xmpp.events` before slixmpp dispatches it; what goes
out is text, counted into stream management by hand, since slixmpp counts only stanza objects.
"The server has it" is learnt by a ping behind the messages: a server handles what one stream sends
in order, so the answer to the ping confirms all before it, with XEP-0198 or, as in components,
without; these ping themselves, and that the ping comes back is the answer. Pings also pace us (at
most 32 kB are unconfirmed per sender) and show a dead connection.
"""

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from xml.etree.ElementTree import Element

import msgspec
import structlog
from slixmpp import ClientXMPP, ComponentXMPP, Iq, Message, Presence
from slixmpp.xmlstream.xmlstream import InvalidCABundle, NotConnectedError

from bots.i18n.translator import voice
from bots.xmpp import adhoc, archive, message_parser, service_discovery, stanzas
from bots.xmpp.events import AdhocCommandReceived, ClientActive, Event, MessageReceived, PresenceChanged, SessionStarted
from bots.xmpp.interface import XmppSessionLost
from service.observability.metrics import MESSAGES
from service.settings import Settings

CHUNK_BYTES: Final = 32_768
CONNECT_WITHIN_S: Final = 10.0
_BOUND_WITHIN_S: Final = 10.0
PING_EVERY_S: Final = 5.0
SLOW_BYTES_PER_S: Final = 20_000
"""A server that takes less limits us; Debian's Prosody lets a client have 10 kB/s."""
SILENT_FOR_S: Final = 15.0
"""A server that says nothing for so long, although pinged, is taken to be gone."""

_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.5, 5.0
_STABLE_AFTER_S = 10.0
_MAX_SEQ = 2**32
_REQUEST_ACK = "<r xmlns='urn:xmpp:sm:3'/>"

_PING: Final = "{urn:xmpp:ping}ping"
_log = structlog.get_logger()

Answer = asyncio.Future[Element]
"""Becomes the answer to a request, be it a result or an error. May raise :class:`XmppSessionLost`."""


class Connection:
    """A :class:`bots.xmpp.interface.XmppClient` that reconnects by itself while :meth:`run` is running."""

    def __init__(self, settings: Settings, session: str, on_event: Callable[[Event], None]) -> None:
        """Prepare to log in as the settings say; every event is handed to ``on_event``, which must not wait.

        Of several connections of one account each needs a ``session`` of its own.
        """
        self.connected = asyncio.Event()
        self.answers_presence = True
        """Whether it is on us to answer those who want to see our account's presence."""
        self.address = settings.xmpp_jid
        self.is_account = settings.xmpp_login == "client"
        self.session_jid = f"{self.address}/{_resource(session)}" if self.is_account else self.address
        self._settings = settings
        self._searches: dict[str, list[Element]] = {}
        self._requests: dict[str, tuple[str, Answer]] = {}  # by id: whom it went to, and its answer
        self.rooms: set[str] = set()
        self._on_event = on_event
        self._host, self._port = _endpoint(settings)
        self._stream = _stream(settings, session)
        self._sm = self._stream.plugin["xep_0198"] if isinstance(self._stream, ClientXMPP) else None
        self._ping_to = self.address if self._sm is None else self.address.partition("@")[2]
        self._down = asyncio.Event()
        self._deadline = asyncio.timeout(None)
        self._session = 0
        self._heard_s = 0.0
        self._since_s = 0.0  # when the connection was last made
        self._told_slow = False
        self._stream.add_filter("in", self._incoming)
        for event, handler in (
            ("session_start", self._session_started),
            ("session_resumed", self._session_resumed),
            ("session_end", self._session_ended),
            ("disconnected", self._disconnected),
            ("failed_all_auth", self._refused),
            ("stream_error", self._ended_by_server),
        ):
            self._stream.add_event_handler(event, handler)

    # Sending.

    async def send(self, stanzas_: Sequence[str]) -> None:
        """See :meth:`bots.xmpp.interface.XmppSender.send`."""
        session = self._session
        started_s = time.monotonic()
        for chunk in _chunks(stanzas_):
            await self.connected.wait()
            if session != self._session:
                raise XmppSessionLost("The XMPP session ended before everything was written.")
            for stanza in chunk:
                self._write(stanza)
            await self._ping()
            MESSAGES.inc(len(chunk))
            started_s = self._notice_pace(sum(map(len, chunk)), started_s)

    def _notice_pace(self, size_bytes: int, started_s: float) -> float:
        """Say once if the server takes little from us; return the time (monotonic s)."""
        now_s = time.monotonic()
        pace = size_bytes / (now_s - started_s)
        is_measured = started_s > self._since_s and size_bytes > CHUNK_BYTES / 2
        if is_measured and pace < SLOW_BYTES_PER_S and not self._told_slow:
            self._told_slow = True
            what = "xmpp server limits our rate: messages arrive, but slowly. Raise the limit for our account"
            _log.warning(f"{what} (Prosody: unlimited_jids)", jid=self.address, bytes_per_s=round(pace))
        return now_s

    def send_unconfirmed(self, stanza: str) -> None:
        """See :meth:`bots.xmpp.interface.XmppSender.hint`."""
        if self.connected.is_set():
            with contextlib.suppress(XmppSessionLost):
                self._write(stanza)

    def _write(self, stanza: str) -> None:
        if self._sm is not None and self._sm.enabled_out:
            self._sm.seq = (self._sm.seq + 1) % _MAX_SEQ
            self._sm.unacked_queue.append((self._sm.seq, stanza))
        self._send_raw(stanza)

    def _send_raw(self, text: str) -> None:
        try:
            self._stream.send_raw(text)
        except NotConnectedError:
            raise XmppSessionLost("The XMPP connection is gone.") from None

    async def request(self, to: str, kind: str, content: str) -> Element:
        """See :meth:`bots.xmpp.interface.XmppClient.ask`."""
        await self.connected.wait()
        return await self._request(to, kind, content)

    def _request(self, to: str, kind: str, content: str) -> Answer:
        """Send a request under an id that nobody can guess; only an answer from ``to`` counts."""
        ident = secrets.token_hex(8)
        answer: Answer = asyncio.get_running_loop().create_future()
        self._requests[ident] = (to, answer)
        answer.add_done_callback(lambda _: self._requests.pop(ident, None))  # also when nobody waits any more
        self._write(stanzas.request(self.address, to, ident, kind, content))
        return answer

    async def query_archive(self, since_s: float, after_id: str, limit: int) -> tuple[list[Element], Element]:
        """See :meth:`bots.xmpp.interface.XmppClient.search`."""
        search = secrets.token_hex(8)
        results = self._searches[search] = []
        try:
            answer = await self.request(self.address, "set", archive.query(search, since_s, after_id, limit))
        finally:
            del self._searches[search]
        return results, answer

    def idle_s(self) -> float:
        """See :meth:`bots.xmpp.interface.XmppClient.silent_s`."""
        return time.monotonic() - self._heard_s

    async def terminate_session(self, session: str) -> None:
        """See :meth:`bots.xmpp.interface.XmppClient.terminate_session`."""
        if not self.is_account:
            return
        remains = _stream(self._settings, session)
        remains.connect(self._host, self._port)
        try:
            await remains.wait_until("session_start", _BOUND_WITHIN_S)
        finally:
            remains.cancel_connection_attempt()
            await _end(remains)

    def _ping(self) -> Answer:
        confirmed = self._request(self._ping_to, "get", "<ping xmlns='urn:xmpp:ping'/>")
        if self._sm is not None and self._sm.enabled_out:
            self._send_raw(_REQUEST_ACK)
        return confirmed

    # Staying connected.

    async def run(self) -> None:
        """Stay connected until cancelled; then end the stream in order."""
        listening = asyncio.create_task(self._watch())
        retry_s = _FIRST_RETRY_S
        try:
            while True:
                started_s = time.monotonic()
                await self._connect_once()
                lasted_s = time.monotonic() - started_s
                retry_s = _FIRST_RETRY_S if lasted_s > _STABLE_AFTER_S else retry_s
                _log.info("xmpp away", retry_s=round(retry_s, 1))
                await asyncio.sleep(retry_s * random.uniform(0.5, 1.0))  # noqa: S311 - it only spreads retries
                retry_s = min(retry_s * 2, _LONGEST_RETRY_S)
        finally:
            listening.cancel()
            self._stream.cancel_connection_attempt()
            await _end(self._stream)
            self._stream.abort()
            self._session_ended(None)

    async def _connect_once(self) -> None:
        """Connect, and return when the connection is gone, or none came about in time."""
        self._down.clear()
        try:
            async with asyncio.timeout(CONNECT_WITHIN_S) as self._deadline:
                await self._stream.connect(self._host, self._port)
                if self._stream.transport is not None:
                    await self._down.wait()
        except TimeoutError:
            _log.warning("xmpp login took too long", limit_s=CONNECT_WITHIN_S)
        except InvalidCABundle as error:
            _log.error("xmpp_ca_file cannot be read", path=str(error))
        # Not when we are cancelled: then the session is ended in order, and nothing of it lingers at the server.
        self._stream.cancel_connection_attempt()
        self._stream.abort()

    async def _watch(self) -> None:
        """Ping an idle server; drop a connection on which nothing comes back (half-open)."""
        while True:
            await asyncio.sleep(PING_EVERY_S)
            if not self.connected.is_set():
                continue
            if self.idle_s() > SILENT_FOR_S:
                _log.warning("xmpp server is silent", for_s=SILENT_FOR_S)
                self._stream.abort()
            else:
                self._ping().add_done_callback(_ignore_outcome)

    # What slixmpp tells.

    def _session_started(self, _event: Any) -> None:
        self._session_ended(None)
        if isinstance(self._stream, ClientXMPP):
            self.session_jid = self._stream.boundjid.full
            self._stream.get_roster()
            self._write(stanzas.presence(self.address, content=service_discovery.PRESENT))
        self._on_event(SessionStarted())
        self._is_up("xmpp session")

    def _session_resumed(self, _event: Any) -> None:
        self._is_up("xmpp session resumed")

    def _is_up(self, how: str) -> None:
        self._heard_s = self._since_s = time.monotonic()
        self._deadline.reschedule(None)
        self.connected.set()
        _log.info(how, jid=self.address)

    def _session_ended(self, _event: Any) -> None:
        self.connected.clear()
        self._session += 1
        unanswered, self._requests = self._requests, {}
        for _, answer in unanswered.values():
            if not answer.done():
                answer.set_exception(XmppSessionLost("The XMPP session ended before the server answered."))

    def _disconnected(self, _event: Any) -> None:
        self.connected.clear()
        self._down.set()

    def _refused(self, _event: Any) -> None:
        _log.error("xmpp login refused: check xmpp_jid and xmpp_password", jid=self.address)

    def _ended_by_server(self, error: Any) -> None:
        _log.error("xmpp server ends the stream", condition=error["condition"], text=error["text"], jid=self.address)

    # What comes in.

    def _incoming(self, stanza: Any) -> Any:
        """Take what is ours; leave the rest (disco, ping, version, roster, stream) to slixmpp."""
        self._heard_s = time.monotonic()
        if isinstance(stanza, Message):
            self._message(stanza.xml)
            return None
        if isinstance(stanza, Presence):
            self._presence(stanza.xml)
            return None
        if isinstance(stanza, Iq) and (self._is_answer(stanza.xml) or self._is_answered(stanza.xml)):
            return None
        return stanza

    def _is_answer(self, iq: Element) -> bool:
        """Take the answer to a request of ours; a ping to ourselves that comes back is one, too."""
        to, answer = self._requests.get(iq.get("id", ""), ("", None))
        if answer is None:
            return False
        sender, kind = iq.get("from", to), iq.get("type", "")
        came_back = kind == "get" and sender == self.address and iq.find(_PING) is not None
        if not came_back and (kind not in ("result", "error") or sender != to):
            return False
        if not answer.done():
            answer.set_result(iq)
        return True

    def _is_answered(self, iq: Element) -> bool:
        """Answer a request, or have it answered, if we know how."""
        sender, kind = iq.get("from", ""), iq.get("type", "")
        if kind == "set" and (ordered := adhoc.read(iq)) is not None:
            if ordered.jid not in self.rooms:
                self._has_written(ordered)
            self._on_event(ordered)
            return True
        if kind == "get" and sender:
            told = service_discovery.answer(iq, self.address, voice(iq.get(adhoc.LANG, "")))
            if told is not None:
                self.send_unconfirmed(stanzas.result(iq.get("to", self.address), sender, iq.get("id", ""), told))
                return True
        return False

    def _message(self, element: Element) -> None:
        sender = element.get("from", self.address)
        if stanzas.bare(sender) == self.address:
            result = element.find(archive.RESULT) if sender == self.address else None
            if result is not None:
                self._searches.get(result.get("queryid", ""), []).append(result)
            return
        event = message_parser.read(element)
        if event is None:
            return
        if (
            isinstance(event, MessageReceived)
            and self.is_account
            and (event.invitation is not None or event.jid not in self.rooms)
        ):
            event = msgspec.structs.replace(event, dedup_key=message_parser.name(element, self.address, time.time()))
        if (
            isinstance(event, MessageReceived)
            and not event.sent_s
            and event.invitation is None
            and event.jid not in self.rooms
        ):
            self._has_written(event)
        self._on_event(event)

    def _has_written(self, event: MessageReceived | AdhocCommandReceived) -> None:
        self._on_event(ClientActive(event.jid, event.sender.partition("/")[2]))

    def _presence(self, element: Element) -> None:
        sender, kind = element.get("from", ""), element.get("type", "")
        jid, _, resource = sender.partition("/")
        if jid in ("", self.address):
            return
        moved = message_parser.room_presence(element)
        if moved is not None:
            self._on_event(moved)
            return
        for answer in _PRESENCE_ANSWERS.get(kind, ()) if self.answers_presence else ():
            self.send_unconfirmed(
                stanzas.presence(self.address, jid, answer, content=service_discovery.PRESENT if not answer else "")
            )
        if kind in ("", "unavailable"):
            is_free = kind == "" and element.findtext("{*}show") not in _AWAY
            self._on_event(PresenceChanged(jid, resource, kind == "", is_free))


_AWAY: Final = ("away", "xa", "dnd")
_PRESENCE_ANSWERS: Final = {
    "probe": ("",),
    "subscribe": ("subscribed", "", "subscribe"),
    "unsubscribe": ("unsubscribed",),
}


def _chunks(items: Sequence[str]) -> Iterator[list[str]]:
    """Cut into stretches of about ``CHUNK_BYTES``, so that a slow server confirms something every few seconds."""
    chunk: list[str] = []
    size = 0
    for item in items:
        chunk.append(item)
        size += len(item)
        if size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _ignore_outcome(confirmed: Answer) -> None:
    if not confirmed.cancelled():
        confirmed.exception()


def _resource(session: str) -> str:
    """Return the resource of a bot's sessions. Whoever takes it replaces what was left behind there."""
    return f"coronet-{session}"


def _endpoint(settings: Settings) -> tuple[str | None, int | None]:
    """Return where to connect; None for what DNS says (clients only)."""
    if settings.xmpp_login == "component":
        return settings.xmpp_host or "127.0.0.1", settings.xmpp_port or 5347
    return (settings.xmpp_host, settings.xmpp_port or 5222) if settings.xmpp_host else (None, None)


def _stream(settings: Settings, session: str) -> ClientXMPP | ComponentXMPP:
    """Return a stream that knows how to log in, not connected yet; an account's is known by ``session``."""
    password = settings.xmpp_password.get_secret_value()
    stream: ClientXMPP | ComponentXMPP
    if settings.xmpp_login == "component":
        stream = ComponentXMPP(settings.xmpp_jid.rpartition("@")[2], password)  # type: ignore[no-untyped-call] # slixmpp left it untyped
    else:
        stream = ClientXMPP(f"{settings.xmpp_jid}/{_resource(session)}", password)
        stream.enable_direct_tls = not settings.xmpp_host  # a host of our own choice speaks STARTTLS
        stream.register_plugin("xep_0198")
        if settings.xmpp_ca_file:
            stream.ca_certs = Path(settings.xmpp_ca_file)
    return stream


async def _end(stream: ClientXMPP | ComponentXMPP) -> None:
    """End a stream in order, and what slixmpp would end only once the stream is garbage."""
    await stream.disconnect(wait=2.0, ignore_send_queue=True)
    sender = stream._run_out_filters  # noqa: SLF001 - see above
    if sender is not None:
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)
