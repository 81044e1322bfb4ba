"""A check of the XMPP login that does not end a bot's session.

Bots record in Redis when they last received data from their server, and respond to readiness checks. For a component,
the handshake (XEP-0114 §3) is completed only if no bot is connected, because many servers would close the bot's
connection. For an account, STARTTLS,
the certificate and the password are checked (RFC 6120 §5 and §6). No resource is bound, because the server could route
users' messages to it. A refused password is tried only once, because servers ban addresses after some failed logins.
"""

import asyncio
import base64
import contextlib
import hashlib
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Collection
from html import escape, unescape

from service.errors import OperationalError
from service.operations.doctor.bot_check import unready_reasons
from service.operations.doctor.redis_checks import SYSTEM_CLOCK, read_store
from service.operations.doctor.report import CheckResult
from service.operations.doctor.sasl_login import SaslLogin
from service.settings import Settings
from service.store import Store

_LOGIN_ADVICE = (
    "Check the settings xmpp_host, xmpp_port, xmpp_login, xmpp_jid and xmpp_password, and that the server runs with"
    " its new configuration."
)
UNTRUSTED_CERTIFICATE = "the certificate is not trusted"
_UNKNOWN_COMPONENT = "the server has no such component"
_REJECTED = "the server rejects the secret"
_PASSWORD_REFUSED = "the password is refused"  # noqa: S105 - no password
_ADVICE = {
    UNTRUSTED_CERTIFICATE: "Give the server a valid certificate for {domain}, or set xmpp_ca_file for a private CA.",
    _UNKNOWN_COMPONENT: "Add the component {domain} to the server's configuration, or correct the address.",
    _REJECTED: "Configure the component {domain} with the password in xmpp_password; all components share it.",
    _PASSWORD_REFUSED: "Check that the account exists, and set xmpp_password to its password. To change that:"
    " `prosodyctl passwd {address}` or `ejabberdctl change_password {user} {domain} PASSWORD`.",
}
_CLOSED_ADVICE = (
    "See the server's log. If the server has banned this address because of failed logins, correct xmpp_password,"
    " and wait until the ban ends."
)
_SASL = "urn:ietf:params:xml:ns:xmpp-sasl"
BOT_SILENCE_LIMIT_S = 30.0
_XMPP_TIMEOUT_S = 5.0
_MAX_READ_BYTES = 16_384
_DEFAULT_PORTS = {"component": 5347, "client": 5222}


class _StreamError(Exception):
    """Raised if the server ends the stream with an error (RFC 6120 §4.9). ``condition`` is the error's condition."""

    def __init__(self, received: bytes) -> None:
        self.condition, text = _condition_and_text(received.partition(b"<stream:error")[2])
        super().__init__(f"the server closed the stream: {text or self.condition}")


async def check_xmpp_logins(settings: Settings) -> list[CheckResult]:
    """Check the login with each configured XMPP address, without disturbing a connected bot."""
    return await check_xmpp(settings, await connected_addresses(settings))


async def connected_addresses(settings: Settings) -> set[str] | None:
    """Return the configured XMPP addresses at which bots are connected.

    The result is None if this is unknown. This is the case if Redis is unavailable, or if some address was in use
    within the last 30 s although no bot is ready now.
    """
    addresses = dict.fromkeys((settings.xmpp_jid, *settings.xmpp_shards))

    async def read(store: Store) -> set[str]:
        now_s = SYSTEM_CLOCK.wall_s()
        return {
            each for each in addresses if now_s - await store.inbound_log.caught_up_until_s(each) < BOT_SILENCE_LIMIT_S
        }

    active, reasons = await asyncio.gather(read_store(settings, read), unready_reasons(settings))
    if active is None or reasons is None:
        return None
    if not reasons:
        return set()  # all bots have stopped
    return active if "" in reasons or not active else None


async def check_xmpp(settings: Settings, connected: Collection[str] | None) -> list[CheckResult]:
    """Check the login with each configured XMPP address.

    ``connected`` is the result of :func:`connected_addresses`.
    """
    if settings.xmpp_login == "client":
        advice = "Remove xmpp_shards, which is for components; bots that share an account divide its users without it."
        unused = CheckResult("XMPP addresses", ok=False, details="an account has one address", advice=advice)
        return [await _check_login(settings, ()), *([unused] if settings.xmpp_shards else ())]
    addresses = dict.fromkeys((settings.xmpp_jid, *settings.xmpp_shards))
    each = [settings.model_copy(update={"xmpp_jid": address}) for address in addresses]
    results = list(await asyncio.gather(*(_check_login(one, connected) for one in each)))
    domains = Counter(address.rpartition("@")[2] for address in addresses)
    shared = [domain for domain, count in domains.items() if count > 1]
    if shared:
        details = f"several at {', '.join(shared)}"
        advice = "Use a separate component for each address: a server closes one of two connections of a component."
        results.append(CheckResult("XMPP addresses", ok=False, details=details, advice=advice))
    return results


async def _check_login(settings: Settings, connected: Collection[str] | None) -> CheckResult:
    address = settings.xmpp_jid
    user, _, domain = address.rpartition("@")
    host, port = settings.xmpp_host or domain, settings.xmpp_port or _DEFAULT_PORTS[settings.xmpp_login]
    where = f"{address} at {host}:{port}"
    if connected and address in connected:
        return CheckResult("XMPP login", ok=True, details=f"{where}: a bot is connected")
    try:
        async with asyncio.timeout(_XMPP_TIMEOUT_S):
            async with _connect(host, port) as (reader, writer):
                if settings.xmpp_login == "client":
                    details = await _try_account(settings, reader, writer)
                else:
                    details = await _try_component(settings, reader, writer, may_disturb=connected is not None)
    except TimeoutError:
        details = f"no response within {_XMPP_TIMEOUT_S:g} s"
        advice = "Check that this port of an XMPP server accepts this kind of login (setting xmpp_login)."
    except _StreamError as error:
        details, advice = str(error), _CLOSED_ADVICE
    except (OSError, OperationalError) as error:
        details = str(error)
        advice = _ADVICE.get(details.partition(":")[0], _LOGIN_ADVICE)
        advice = advice.format(address=address, user=user, domain=domain)
    else:
        if not connected:
            return CheckResult("XMPP login", ok=True, details=f"{where}: {details}")
        advice = "Bots of other addresses are connected. If this one is not within a minute, see the bots' logs."
    return CheckResult("XMPP login", ok=False, details=f"{where}: {details}", advice=advice)


@contextlib.asynccontextmanager
async def _connect(host: str, port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()  # without closing the stream: this may be no XMPP server
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _try_component(
    settings: Settings, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, may_disturb: bool
) -> str:
    secret = settings.xmpp_password.get_secret_value().encode()
    try:
        writer.write(_stream_header("jabber:component:accept", settings.xmpp_jid.rpartition("@")[2]))
        stream_id = (await _read_match(reader, rb"<stream:stream[^>]*\bid=['\"]([^'\"]+)['\"][^>]*>"))[1]
        if not may_disturb:
            return (
                "the server has this component; the secret is not tried while it is unknown whether a bot is connected"
            )
        digest = hashlib.sha1(stream_id + secret, usedforsecurity=False).hexdigest()  # required by XEP-0114
        writer.write(f"<handshake>{digest}</handshake>".encode())
        await _read_match(reader, rb"<handshake[^>]*>")
    except _StreamError as error:
        match error.condition:
            case "host-unknown":
                raise OperationalError(_UNKNOWN_COMPONENT) from None
            case "not-authorized":
                raise OperationalError(_REJECTED) from None
            case "conflict":
                return "the secret is correct; a bot is connected"
        raise
    return "the secret is correct; no bot is connected"


async def _try_account(settings: Settings, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    user, _, domain = settings.xmpp_jid.rpartition("@")
    if b"urn:ietf:params:xml:ns:xmpp-tls" not in await _open_client_stream(reader, writer, domain):
        raise OperationalError("the server offers no STARTTLS")
    writer.write(b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>")
    await _read_match(reader, rb"<proceed[^>]*>")
    try:
        context = ssl.create_default_context(cafile=settings.xmpp_ca_file or None)
    except OSError as error:
        details = f"xmpp_ca_file {settings.xmpp_ca_file} cannot be read: {error.strerror}"
        raise OperationalError(f"{UNTRUSTED_CERTIFICATE}: {details}") from error
    try:
        await writer.start_tls(context, server_hostname=domain)
    except ssl.SSLCertVerificationError as error:
        raise OperationalError(f"{UNTRUSTED_CERTIFICATE}: {error.verify_message}") from error
    features = await _open_client_stream(reader, writer, domain)
    offered = {name.decode() for name in re.findall(rb"<mechanism\b[^>]*>\s*([\w-]+)\s*<", features)}
    login = SaslLogin(offered, user, settings.xmpp_password.get_secret_value())
    message = base64.b64encode(login.first_message).decode()
    writer.write(f"<auth xmlns='{_SASL}' mechanism='{login.mechanism}'>{message}</auth>".encode())
    response = await _read_match(reader, rb"<(success)\b|<(failure)\b.*?</failure>|<challenge\b[^>]*>([^<]*)<")
    if response[3] is not None:
        answer = base64.b64encode(login.answer(base64.b64decode(response[3]))).decode()
        writer.write(f"<response xmlns='{_SASL}'>{answer}</response>".encode())
        response = await _read_match(reader, rb"<(success)\b|<(failure)\b.*?</failure>")
    if response[1]:
        return "the certificate is trusted and the password is correct"
    condition, text = _condition_and_text(response[0])
    if condition == "not-authorized":
        raise OperationalError(_PASSWORD_REFUSED)
    raise OperationalError(f"the server refuses the login: {text or condition}")


async def _open_client_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, domain: str) -> bytes:
    """Open a stream to ``domain``, and return the features that the server offers."""
    writer.write(_stream_header("jabber:client", domain))
    return (await _read_match(reader, rb"<stream:features\b.*?</stream:features>"))[0]


def _stream_header(namespace: str, to: str) -> bytes:
    stream = "xmlns:stream='http://etherx.jabber.org/streams' version='1.0'"
    return f"<?xml version='1.0'?><stream:stream xmlns='{namespace}' {stream} to='{escape(to)}'>".encode()


async def _read_match(reader: asyncio.StreamReader, pattern: bytes) -> re.Match[bytes]:
    """Read until the received data contain ``pattern``, and return the match.

    Raises :class:`_StreamError` if the server sends a stream error instead.
    """
    received = b""
    while (match := re.search(pattern, received, re.DOTALL)) is None:
        chunk = await reader.read(_MAX_READ_BYTES)
        if not chunk or len(received) > _MAX_READ_BYTES:
            raise OperationalError("the server closed the stream")
        received += chunk
        if b"</stream:error>" in received:
            raise _StreamError(received)
    return match


def _condition_and_text(element: bytes) -> tuple[str, str]:
    """Return the condition and the text of a stream error or SASL failure; the text may be "".

    ``element`` is the XML of the error.
    """
    children = element.partition(b">")[2].decode(errors="replace")
    condition = next((name for name in re.findall(r"<([a-z-]+)", children) if name != "text"), "unknown error")
    text = re.search(r"<text\b[^>]*>([^<]*)<", children)
    return condition, " ".join(unescape(text[1]).split()) if text else ""
