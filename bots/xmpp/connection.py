"""The connection to the XMPP server, as a component or as a client.

When a session ends, the connection begins a new one. Incoming stanzas are converted to :mod:`bots.xmpp.events` before
slixmpp dispatches them. Outgoing stanzas are text; because slixmpp counts only stanza objects, this module itself adds
them to the queue of stream management (XEP-0198).

A ping after a batch of stanzas confirms them: a server handles the stanzas of one stream in order, so its response to
the ping implies that it has received all stanzas before it. This works with and without XEP-0198, which is not
available to components. A component pings its own address: the server sends the ping back to the component, and the
arrival of the ping counts as the response. Pings also limit the send rate, because each sender waits for a confirmation
after about ``CHUNK_BYTES``. In addition, they detect a dead connection.
"""

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from xml.etree.ElementTree import Element

import msgspec
import structlog
from slixmpp import ClientXMPP, ComponentXMPP, Iq, Message, Presence
from slixmpp.xmlstream.xmlstream import InvalidCABundle, NotConnectedError

from bots.i18n.translator import get_translator
from bots.xmpp import adhoc_stanzas, archive, deduplication, message_parser, stanzas
from bots.xmpp.events import Event, MessageReceived, PresenceChanged, SessionStarted
from bots.xmpp.interface import XmppSessionLost
from bots.xmpp.service_discovery import DiscoveryProfile
from service.observability.metrics import MESSAGES
from service.settings import Settings

CHUNK_BYTES: Final = 32_768
CONNECT_TIMEOUT_S: Final = 10.0
PING_INTERVAL_S: Final = 5.0
SLOW_BYTES_PER_S: Final = 20_000
"""If data is accepted at a lower rate, the server is assumed to limit the rate of the bot. Prosody as configured by
Debian allows 10 kB/s."""
SILENCE_TIMEOUT_S: Final = 15.0
"""The connection is dropped if no stanza has arrived for this time, not even a response to a ping."""

_BIND_TIMEOUT_S: Final = 10.0
_MIN_RETRY_S, _MAX_RETRY_S = 0.5, 5.0
_STABLE_AFTER_S = 10.0
"""If a connection has lasted at least this long, the pause before the next attempt to connect is short again."""
_REFUSED_RETRIES_S: Final = 60.0, 300.0, 900.0
"""The pauses after an account's login has been refused once, twice, and more often without a session in between.
Servers ban addresses for an hour or longer if many logins fail."""
_MAX_SM_SEQUENCE = 2**32
_SM_REQUEST_ACK = "<r xmlns='urn:xmpp:sm:3'/>"
_PING: Final = "{urn:xmpp:ping}ping"
_AWAY: Final = ("away", "xa", "dnd")
_PRESENCE_RESPONSES: Final = {
    "probe": ("",),
    "subscribe": ("subscribed", "", "subscribe"),
    "unsubscribe": ("unsubscribed",),
}
"""Maps the type of an incoming presence to the types of the presences sent in response; "" means "available"."""
_log = structlog.get_logger()

ResponseFuture = asyncio.Future[Element]
"""A future for the response to a request, which is a result or an error. Awaiting it raises :class:`XmppSessionLost` if
the session ends before the response arrives."""


class Connection:
    """Implements :class:`bots.xmpp.interface.XmppClient`; it reconnects while :meth:`run` is running."""

    def __init__(self, settings: Settings, session: str, on_event: Callable[[Event], None]) -> None:
        """Create a connection that is not established yet; :meth:`run` establishes it.

        ``session`` is the name of the session. It distinguishes the processes that are logged in to the same account.
        ``on_event`` is called with each event and must not wait.
        """
        self.connected = asyncio.Event()
        self.answers_presence: Callable[[], bool] = lambda: True
        """Returns whether this session responds to presence subscriptions and probes. Only one of an account's sessions
        does."""
        self.address = settings.xmpp_jid
        self.is_account = settings.xmpp_login == "client"
        self.session_jid = f"{self.address}/{_resource(session)}" if self.is_account else self.address
        self.rooms: set[str] = set()
        self._profile = DiscoveryProfile(settings.contact_addresses)
        self.presence_content = self._profile.presence_content
        self._settings = settings
        self._on_event = on_event
        self._archive_queries: dict[str, list[Element]] = {}
        """Maps the id of each archive query in progress to the results received so far."""
        self._requests: dict[str, tuple[str, ResponseFuture]] = {}
        """Maps the stanza id of each pending request to (receiver, future for the response)."""
        self._host, self._port = _endpoint(settings)
        self._stream = _create_stream(settings, session)
        self._sm = self._stream.plugin["xep_0198"] if isinstance(self._stream, ClientXMPP) else None
        self._ping_to = self.address if self._sm is None else self.address.partition("@")[2]
        self._disconnected = asyncio.Event()
        self._connect_deadline = asyncio.timeout(None)
        self._session_number = 0
        self._refusals = 0
        """The number of refused logins since the last session."""
        self._last_received_s = 0.0
        self._connected_since_s = 0.0
        self._has_warned_slow = False
        self._stream.add_filter("in", self._on_stanza)
        for event, handler in (
            ("session_start", self._on_session_start),
            ("session_resumed", self._on_session_resumed),
            ("session_end", self._on_session_end),
            ("disconnected", self._on_disconnected),
            ("failed_auth", self._on_authentication_failed),
            ("failed_all_auth", self._on_login_refused),
            ("stream_error", self._on_stream_error),
        ):
            self._stream.add_event_handler(event, handler)

    # Sending.

    async def send(self, stanzas_: Sequence[str]) -> None:
        """Send stanzas in order, and wait until the server has confirmed them.

        See :meth:`bots.xmpp.interface.XmppSender.send`.
        """
        session_number = self._session_number
        started_s = time.monotonic()
        for chunk in _split_into_chunks(stanzas_):
            await self.connected.wait()
            if session_number != self._session_number:
                raise XmppSessionLost("The XMPP session ended before everything was written.")
            for stanza in chunk:
                self._write(stanza)
            await self._ping()
            MESSAGES.inc(len(chunk))
            started_s = self._check_rate(sum(map(len, chunk)), started_s)

    def _check_rate(self, size_bytes: int, started_s: float) -> float:
        """Log a warning if the server accepts data slowly, but only once; return the current time.

        ``size_bytes`` is how much data has been sent and confirmed since ``started_s``. Both times are in seconds of
        the monotonic clock.
        """
        now_s = time.monotonic()
        rate = size_bytes / (now_s - started_s)
        is_measured = started_s > self._connected_since_s and size_bytes > CHUNK_BYTES / 2
        if is_measured and rate < SLOW_BYTES_PER_S and not self._has_warned_slow:
            self._has_warned_slow = True
            _log.warning(
                "xmpp send rate limited by server",
                jid=self.address,
                bytes_per_s=round(rate),
                advice="Raise the limit for the bot's account (Prosody: unlimited_jids).",
            )
        return now_s

    def send_unconfirmed(self, stanza: str) -> None:
        """Send a stanza without waiting for a confirmation.

        See :meth:`bots.xmpp.interface.XmppSender.send_unconfirmed`.
        """
        if self.connected.is_set():
            with contextlib.suppress(XmppSessionLost):
                self._write(stanza)

    def _write(self, stanza: str) -> None:
        if self._sm is not None and self._sm.enabled_out:
            self._sm.seq = (self._sm.seq + 1) % _MAX_SM_SEQUENCE
            self._sm.unacked_queue.append((self._sm.seq, stanza))
        try:
            self._stream.send_raw(stanza)
        except NotConnectedError:
            raise XmppSessionLost("The XMPP connection is gone.") from None

    async def request(self, to: str, kind: str, content: str) -> Element:
        """Send an IQ request, and return the response.

        See :meth:`bots.xmpp.interface.XmppClient.request`.
        """
        await self.connected.wait()
        return await self._send_request(to, kind, content)

    def _send_request(self, to: str, kind: str, content: str) -> ResponseFuture:
        """Send a request with a random id, and return a future for the response.

        Only a response from the address ``to`` completes the future.
        """
        ident = secrets.token_hex(8)
        response: ResponseFuture = asyncio.get_running_loop().create_future()
        self._requests[ident] = (to, response)
        response.add_done_callback(partial(self._on_request_done, ident))
        self._write(stanzas.iq(self.address, to, ident, kind, content))
        return response

    def _on_request_done(self, ident: str, response: ResponseFuture) -> None:
        """Remove a request from the pending requests, because its response has arrived or its caller was cancelled.

        This method also retrieves the exception of the response, if any. Nobody awaits the responses to keep-alive
        pings, so asyncio would otherwise log their exceptions.
        """
        self._requests.pop(ident, None)
        if not response.cancelled():
            response.exception()

    async def query_archive(self, since_s: float, after_id: str, limit: int) -> tuple[list[Element], Element]:
        """Return one page of the account's message archive.

        See :meth:`bots.xmpp.interface.XmppClient.query_archive`.
        """
        query_id = secrets.token_hex(8)
        results = self._archive_queries[query_id] = []
        try:
            payload = archive.query_payload(query_id, since_s, after_id, limit)
            response = await self.request(self.address, "set", payload)
        finally:
            del self._archive_queries[query_id]
        return results, response

    def idle_s(self) -> float:
        """Return the seconds since the last stanza was received.

        See :meth:`bots.xmpp.interface.XmppClient.idle_s`.
        """
        return time.monotonic() - self._last_received_s

    async def terminate_session(self, session: str) -> None:
        """End another session of this account; see :meth:`bots.xmpp.interface.XmppClient.terminate_session`.

        To end the other session, this method logs in with the resource of that session, which makes the server replace
        it (RFC 6120 §7.7.2.2).
        """
        if not self.is_account:
            return
        stream = _create_stream(self._settings, session)
        stream.connect(self._host, self._port)
        try:
            await stream.wait_until("session_start", _BIND_TIMEOUT_S)
        finally:
            stream.cancel_connection_attempt()
            await _close_stream(stream)

    def _ping(self) -> ResponseFuture:
        response = self._send_request(self._ping_to, "get", "<ping xmlns='urn:xmpp:ping'/>")
        if self._sm is not None and self._sm.enabled_out:
            self._stream.send_raw(_SM_REQUEST_ACK)
        return response

    # Connecting.

    async def run(self) -> None:
        """Stay connected until cancelled; then close the stream properly."""
        keepalive = asyncio.create_task(self._keep_alive())
        retry_s = _MIN_RETRY_S
        try:
            while True:
                started_s, refusals = time.monotonic(), self._refusals
                await self._connect_once()
                duration_s = time.monotonic() - started_s
                if self._refusals > refusals:
                    pause_s = _REFUSED_RETRIES_S[min(refusals, len(_REFUSED_RETRIES_S) - 1)]
                else:
                    retry_s = _MIN_RETRY_S if duration_s > _STABLE_AFTER_S else retry_s
                    pause_s = retry_s * random.uniform(0.5, 1.0)  # noqa: S311 - it only spreads retries
                    retry_s = min(retry_s * 2, _MAX_RETRY_S)
                _log.info("xmpp connection lost", retry_in_s=round(pause_s, 1))
                await asyncio.sleep(pause_s)
        finally:
            keepalive.cancel()
            self._stream.cancel_connection_attempt()
            await _close_stream(self._stream)
            self._stream.abort()
            self._on_session_end(None)

    async def _connect_once(self) -> None:
        """Connect, and wait until the connection ends; return early if the connection is not established in time."""
        self._disconnected.clear()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S) as self._connect_deadline:
                await self._stream.connect(self._host, self._port)
                if self._stream.transport is not None:
                    await self._disconnected.wait()
        except TimeoutError:
            _log.warning("xmpp login timed out", limit_s=CONNECT_TIMEOUT_S)
        except InvalidCABundle as error:
            _log.error("xmpp ca file unreadable", error=str(error))
        # Not after a cancellation: run() closes the stream in order then, so that no session lingers at the server.
        self._stream.cancel_connection_attempt()
        self._stream.abort()

    async def _keep_alive(self) -> None:
        """Ping the server regularly; drop the connection if no stanza arrives for ``SILENCE_TIMEOUT_S`` seconds."""
        while True:
            await asyncio.sleep(PING_INTERVAL_S)
            if not self.connected.is_set():
                continue
            if self.idle_s() > SILENCE_TIMEOUT_S:
                _log.warning("xmpp server unresponsive", timeout_s=SILENCE_TIMEOUT_S)
                self._stream.abort()
            else:
                self._ping()

    # Handlers of slixmpp's stream events.

    def _on_session_start(self, _event: Any) -> None:
        self._on_session_end(None)
        if isinstance(self._stream, ClientXMPP):
            self.session_jid = self._stream.boundjid.full
            self._stream.get_roster()
            self._write(stanzas.presence(self.address, content=self.presence_content))
        self._on_event(SessionStarted())
        self._set_connected("xmpp session started")

    def _on_session_resumed(self, _event: Any) -> None:
        self._set_connected("xmpp session resumed")

    def _set_connected(self, log_event: str) -> None:
        self._last_received_s = self._connected_since_s = time.monotonic()
        self._connect_deadline.reschedule(None)
        self._refusals = 0
        self.connected.set()
        _log.info(log_event, jid=self.address)

    def _on_session_end(self, _event: Any) -> None:
        self.connected.clear()
        self._session_number += 1
        pending, self._requests = self._requests, {}
        for _, response in pending.values():
            if not response.done():
                response.set_exception(XmppSessionLost("The XMPP session ended before the server answered."))

    def _on_disconnected(self, _event: Any) -> None:
        self.connected.clear()
        self._disconnected.set()

    def _on_authentication_failed(self, failure: Any) -> None:
        if failure["condition"] != "temporary-auth-failure":
            self._refusals += 1

    def _on_login_refused(self, _event: Any) -> None:
        _log.error("xmpp login refused", jid=self.address, advice="Check xmpp_jid and xmpp_password.")

    def _on_stream_error(self, error: Any) -> None:
        _log.error("xmpp server closed the stream", condition=error["condition"], text=error["text"], jid=self.address)

    # Incoming stanzas.

    def _on_stanza(self, stanza: Any) -> Any:
        """Handle a received stanza and return None, or return the stanza if slixmpp must handle it.

        For example, slixmpp handles responses to its own requests for the roster.
        """
        self._last_received_s = time.monotonic()
        if isinstance(stanza, Message):
            self._on_message(stanza.xml)
            return None
        if isinstance(stanza, Presence):
            self._on_presence(stanza.xml)
            return None
        if isinstance(stanza, Iq) and (self._handle_response(stanza.xml) or self._handle_request(stanza.xml)):
            return None
        return stanza

    def _handle_response(self, iq: Element) -> bool:
        """Complete the pending request to which ``iq`` responds; return False if there is no such request.

        If ``iq`` is the bot's own ping, which the server has delivered back to the bot, it counts as the response to
        the ping.
        """
        to, response = self._requests.get(iq.get("id", ""), ("", None))
        if response is None:
            return False
        sender, kind = iq.get("from", to), iq.get("type", "")
        is_own_ping = kind == "get" and sender == self.address and iq.find(_PING) is not None
        if not is_own_ping and (kind not in ("result", "error") or sender != to):
            return False
        if not response.done():
            response.set_result(iq)
        return True

    def _handle_request(self, iq: Element) -> bool:
        """Answer a request for the bot's profile, or report an ad-hoc command; return False for other requests."""
        sender, kind = iq.get("from", ""), iq.get("type", "")
        if kind == "set" and (command := adhoc_stanzas.parse_command(iq)) is not None:
            self._on_event(command)
            return True
        if kind == "get" and sender:
            payload = self._profile.response_payload(
                iq, self.address, get_translator(iq.get(adhoc_stanzas.XML_LANG, ""))
            )
            if payload is not None:
                address, ident = iq.get("to", self.address), iq.get("id", "")
                self.send_unconfirmed(stanzas.iq(address, sender, ident, "result", payload))
                return True
        return False

    def _on_message(self, element: Element) -> None:
        sender = element.get("from", self.address)
        if stanzas.bare_jid(sender) == self.address:
            result = element.find(archive.RESULT) if sender == self.address else None
            if result is not None:
                self._archive_queries.get(result.get("queryid", ""), []).append(result)
            return
        event = message_parser.parse_message(element)
        if event is None:
            return
        if isinstance(event, MessageReceived) and self.is_account and not event.is_groupchat:
            dedup_key = deduplication.dedup_key(element, self.address, time.time())
            event = msgspec.structs.replace(event, dedup_key=dedup_key)
        self._on_event(event)

    def _on_presence(self, element: Element) -> None:
        sender, kind = element.get("from", ""), element.get("type", "")
        jid, _, resource = sender.partition("/")
        if jid in ("", self.address):
            return
        room_event = message_parser.parse_room_presence(element)
        if room_event is not None:
            self._on_event(room_event)
            return
        for response in _PRESENCE_RESPONSES.get(kind, ()) if self.answers_presence() else ():
            content = self.presence_content if not response else ""
            self.send_unconfirmed(stanzas.presence(self.address, jid, response, content=content))
        if kind in ("", "unavailable"):
            is_free = kind == "" and element.findtext("{*}show") not in _AWAY
            self._on_event(PresenceChanged(jid, resource, kind == "", is_free))


def _split_into_chunks(items: Sequence[str]) -> Iterator[list[str]]:
    """Yield the stanzas in ``items``, in order, in lists of about ``CHUNK_BYTES`` each.

    The caller waits for a confirmation of each list. The lists are so small that even a slow server confirms one every
    few seconds.
    """
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


def _resource(session: str) -> str:
    """Return the XMPP resource for a session of the bot.

    If a process logs in with the resource of an existing session, the server ends that session.
    """
    return f"coronet-{session}"


def _endpoint(settings: Settings) -> tuple[str | None, int | None]:
    """Return the host and port to connect to; (None, None) means that a client must look them up in the DNS."""
    if settings.xmpp_login == "component":
        return settings.xmpp_host or "127.0.0.1", settings.xmpp_port or 5347
    return (settings.xmpp_host, settings.xmpp_port or 5222) if settings.xmpp_host else (None, None)


def _create_stream(settings: Settings, session: str) -> ClientXMPP | ComponentXMPP:
    """Create a stream that has credentials but is not yet connected; ``session`` determines a client's resource."""
    password = settings.xmpp_password.get_secret_value()
    stream: ClientXMPP | ComponentXMPP
    if settings.xmpp_login == "component":
        stream = ComponentXMPP(settings.xmpp_jid.rpartition("@")[2], password)  # type: ignore[no-untyped-call] # slixmpp left it untyped
    else:
        stream = ClientXMPP(f"{settings.xmpp_jid}/{_resource(session)}", password)
        stream.enable_direct_tls = not settings.xmpp_host  # a configured host uses STARTTLS
        stream.register_plugin("xep_0198")
        # Without other mechanisms, slixmpp does not try the same password again by a weaker one.
        mechanisms = stream.plugin["feature_mechanisms"]
        stream.add_event_handler("failed_auth", lambda _: mechanisms.mech_list.clear())
        if settings.xmpp_ca_file:
            stream.ca_certs = Path(settings.xmpp_ca_file)
    return stream


async def _close_stream(stream: ClientXMPP | ComponentXMPP) -> None:
    """Close a stream cleanly, and cancel the slixmpp task that would otherwise run until garbage collection."""
    await stream.disconnect(wait=2.0, ignore_send_queue=True)
    sender = stream._run_out_filters  # noqa: SLF001 - see above
    if sender is not None:
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)
