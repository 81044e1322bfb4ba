"""A check of the XMPP login that does not end a bot's session.

Bots record in Redis when they last received data from their server. For a component, the handshake (XEP-0114 §3) is
completed only if no bot is connected, because many servers would close the bot's connection. For a client account, only
STARTTLS and the certificate are checked (RFC 6120 §5). A complete login would create another session, to which the
server could route users' messages.
"""

import asyncio
import contextlib
import hashlib
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from html import escape

from service.errors import OperationalError
from service.operations.doctor.redis_checks import SYSTEM_CLOCK, read_store
from service.operations.doctor.report import CheckResult
from service.settings import Settings
from service.store import Store

_LOGIN_ADVICE = (
    "Check the settings xmpp_host, xmpp_port, xmpp_login, xmpp_jid and xmpp_password, and that the server is running."
)
UNTRUSTED_CERTIFICATE = "the certificate is not trusted"
_UNKNOWN_COMPONENT = "the server has no such component"
_REJECTED = "the server rejects the secret"
_ADVICE = {
    UNTRUSTED_CERTIFICATE: "Give the server a valid certificate for {domain}, or set xmpp_ca_file for a private CA.",
    _UNKNOWN_COMPONENT: "Add the component {domain} to the server's configuration, or correct the address.",
    _REJECTED: "Configure the component {domain} with the password in xmpp_password; all components share it.",
}
BOT_SILENCE_LIMIT_S = 30.0
_XMPP_TIMEOUT_S = 5.0
_MAX_READ_BYTES = 16_384
_DEFAULT_PORTS = {"component": 5347, "client": 5222}


async def check_xmpp_logins(settings: Settings) -> list[CheckResult]:
    """Check the login with each configured XMPP address, without disturbing a connected bot."""
    return await check_xmpp(settings, await bot_silences_s(settings))


async def bot_silences_s(settings: Settings) -> dict[str, float] | None:
    """Map each bot's XMPP address to the number of seconds since the bot last received data.

    The result is None if Redis is unavailable.
    """
    addresses = dict.fromkeys((settings.xmpp_jid, *settings.xmpp_shards))

    async def read(store: Store) -> dict[str, float]:
        return {each: SYSTEM_CLOCK.wall_s() - await store.inbound_log.caught_up_until_s(each) for each in addresses}

    return await read_store(settings, read)


async def check_xmpp(settings: Settings, silences_s: Mapping[str, float] | None) -> list[CheckResult]:
    """Check the login with each configured XMPP address.

    ``silences_s`` is the result of :func:`bot_silences_s`: it maps each address to the number of seconds since its bot
    last received data, or is None if Redis is unavailable.
    """
    if settings.xmpp_login == "client":
        advice = "Remove xmpp_shards, which is for components; bots that share an account divide its users without it."
        unused = CheckResult("XMPP addresses", ok=False, details="an account has one address", advice=advice)
        return [await _check_login(settings, silences_s), *([unused] if settings.xmpp_shards else ())]
    addresses = dict.fromkeys((settings.xmpp_jid, *settings.xmpp_shards))
    each = [settings.model_copy(update={"xmpp_jid": address}) for address in addresses]
    results = list(await asyncio.gather(*(_check_login(one, silences_s) for one in each)))
    domains = Counter(address.rpartition("@")[2] for address in addresses)
    shared = [domain for domain, count in domains.items() if count > 1]
    if shared:
        details = f"several at {', '.join(shared)}"
        advice = "Use a separate component for each address: a server closes one of two connections of a component."
        results.append(CheckResult("XMPP addresses", ok=False, details=details, advice=advice))
    return results


async def _check_login(settings: Settings, silences_s: Mapping[str, float] | None) -> CheckResult:
    address, domain = settings.xmpp_jid, settings.xmpp_jid.rpartition("@")[2]
    host, port = settings.xmpp_host or domain, settings.xmpp_port or _DEFAULT_PORTS[settings.xmpp_login]
    where = f"{address} at {host}:{port}"
    connected = [each for each, silence_s in (silences_s or {}).items() if silence_s < BOT_SILENCE_LIMIT_S]
    if address in connected:
        return CheckResult("XMPP login", ok=True, details=f"{where}: a bot is connected")
    try:
        async with asyncio.timeout(_XMPP_TIMEOUT_S):
            async with _connect(host, port) as (reader, writer):
                if settings.xmpp_login == "client":
                    details = await _try_client(settings, reader, writer)
                else:
                    details = await _try_component(settings, reader, writer, may_disturb=silences_s is not None)
    except TimeoutError:
        details = f"no response within {_XMPP_TIMEOUT_S:g} s"
        advice = "Check that this port of an XMPP server accepts this kind of login (setting xmpp_login)."
    except (OSError, OperationalError) as error:
        details = str(error)
        advice = _ADVICE.get(details.partition(":")[0], _LOGIN_ADVICE).format(domain=domain)
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
    writer.write(_stream_header("jabber:component:accept", settings.xmpp_jid.rpartition("@")[2]))
    header = await _read_until(reader, rb"<stream:stream[^>]*\bid=['\"][^'\"]+['\"][^>]*>|</stream:error>")
    stream_id = re.search(rb"\bid=['\"]([^'\"]+)['\"]", header)
    if b"<host-unknown" in header:
        raise OperationalError(_UNKNOWN_COMPONENT)
    if stream_id is None:
        raise OperationalError("the server did not open a stream")
    if not may_disturb:
        return (
            "the server has this component; the secret is not tried while Redis cannot tell whether a bot is connected"
        )
    secret = settings.xmpp_password.get_secret_value().encode()
    digest = hashlib.sha1(stream_id[1] + secret, usedforsecurity=False).hexdigest()  # required by XEP-0114
    writer.write(f"<handshake>{digest}</handshake>".encode())
    response = await _read_until(reader, rb"<handshake[^>]*>|</stream:error>")
    if b"<handshake" in response:
        return "the secret is correct; no bot is connected"
    if b"<conflict" in response:
        return "the secret is correct; a bot is connected"
    raise OperationalError(_REJECTED)


async def _try_client(settings: Settings, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    domain = settings.xmpp_jid.rpartition("@")[2]
    writer.write(_stream_header("jabber:client", domain))
    if b"urn:ietf:params:xml:ns:xmpp-tls" not in await _read_until(reader, rb"</stream:features>"):
        raise OperationalError("the server offers no STARTTLS")
    writer.write(b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>")
    await _read_until(reader, rb"<proceed[^>]*>")
    try:
        context = ssl.create_default_context(cafile=settings.xmpp_ca_file or None)
    except OSError as error:
        details = f"xmpp_ca_file {settings.xmpp_ca_file} cannot be read: {error.strerror}"
        raise OperationalError(f"{UNTRUSTED_CERTIFICATE}: {details}") from error
    try:
        await writer.start_tls(context, server_hostname=domain)
    except ssl.SSLCertVerificationError as error:
        raise OperationalError(f"{UNTRUSTED_CERTIFICATE}: {error.verify_message}") from error
    return "STARTTLS works and the certificate is trusted"


def _stream_header(namespace: str, to: str) -> bytes:
    stream = "xmlns:stream='http://etherx.jabber.org/streams' version='1.0'"
    return f"<?xml version='1.0'?><stream:stream xmlns='{namespace}' {stream} to='{escape(to)}'>".encode()


async def _read_until(reader: asyncio.StreamReader, pattern: bytes) -> bytes:
    received = b""
    while not re.search(pattern, received):
        chunk = await reader.read(_MAX_READ_BYTES)
        if not chunk or len(received) > _MAX_READ_BYTES:
            raise OperationalError("the server closed the stream")
        received += chunk
    return received
