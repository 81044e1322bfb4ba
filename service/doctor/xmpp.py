"""The XMPP account, or each of the components: can a bot log in? Tried as far as that disturbs no bot that is.

Bots say in Redis when they heard from their server last. Where none has, a component's handshake (XEP-0114 §3) is made
in full: many a server would end a bot's connection for it. A client account is checked up to STARTTLS and the
certificate (RFC 6120 §5): a login would be one more session that people's words may be brought to.
"""

import asyncio
import contextlib
import hashlib
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from html import escape

from service.doctor.checks import Finding
from service.errors import OperationalError
from service.settings import Settings

_CHECK = (
    "Check xmpp_host, xmpp_port, xmpp_login, xmpp_jid, xmpp_password and xmpp_ca_file;"
    " for a running `coronet up`, name its directory with --state."
)
_UNKNOWN = "the server has no such component"
_REFUSED = "the server refuses the secret"
_ADVICE = {
    _UNKNOWN: "Add the component {domain} to the server's configuration, or correct the address.",
    _REFUSED: "Give the component {domain} the password that xmpp_password is: all components have the same.",
}
CONNECTED_WITHIN_S = 30.0
_WITHIN_S = 5.0
_READ_BYTES = 16_384
_PORTS = {"component": 5347, "client": 5222}


async def check_xmpp(settings: Settings, silent_s: Mapping[str, float] | None) -> list[Finding]:
    """Try to log in as each address, and say how it went.

    ``silent_s`` is for how long (s) the bot of each address has not heard from its server; None if nobody knows.
    """
    if settings.xmpp_login == "client":
        about_shards = "xmpp_shards is for components: without it, bots with an account share its people out."
        unused = Finding("XMPP addresses", ok=False, seen="an account has one address", advice=about_shards)
        return [await _check(settings, silent_s), *([unused] if settings.xmpp_shards else ())]
    addresses = dict.fromkeys((settings.xmpp_jid, *settings.xmpp_shards))
    each = [settings.model_copy(update={"xmpp_jid": address}) for address in addresses]
    findings = list(await asyncio.gather(*(_check(one, silent_s) for one in each)))
    domains = Counter(address.rpartition("@")[2] for address in addresses)
    shared = [domain for domain, count in domains.items() if count > 1]
    if shared:
        seen = f"several at {', '.join(shared)}"
        advice = "Give each address a component of its own: of two connections of one component a server ends one."
        findings.append(Finding("XMPP addresses", ok=False, seen=seen, advice=advice))
    return findings


async def _check(settings: Settings, silent_s: Mapping[str, float] | None) -> Finding:
    address, domain = settings.xmpp_jid, settings.xmpp_jid.rpartition("@")[2]
    host, port = settings.xmpp_host or domain, settings.xmpp_port or _PORTS[settings.xmpp_login]
    where = f"{address} at {host}:{port}"
    served = [each for each, silent in (silent_s or {}).items() if silent < CONNECTED_WITHIN_S]
    if address in served:
        return Finding("XMPP login", ok=True, seen=f"{where}: a bot is connected")
    try:
        async with asyncio.timeout(_WITHIN_S):
            async with _connected(host, port) as (reader, writer):
                if settings.xmpp_login == "client":
                    seen = await _client(settings, reader, writer)
                else:
                    seen = await _component(settings, reader, writer, may_disturb=silent_s is not None)
    except TimeoutError:
        seen, advice = f"no answer within {_WITHIN_S:g} s", "Is it an XMPP server's port of this kind of login?"
    except (OSError, OperationalError) as error:
        seen, advice = str(error), _ADVICE.get(str(error), _CHECK).format(domain=domain)
    else:
        if not served:
            return Finding("XMPP login", ok=True, seen=f"{where}: {seen}")
        advice = "Others are served. If this one is not in a minute, look into the bots' logs."
    return Finding("XMPP login", ok=False, seen=f"{where}: {seen}", advice=advice)


@contextlib.asynccontextmanager
async def _connected(host: str, port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()  # nobody has to take leave of a server that may be none
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _component(
    settings: Settings, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, may_disturb: bool
) -> str:
    writer.write(_opening("jabber:component:accept", settings.xmpp_jid.rpartition("@")[2]))
    header = await _until(reader, rb"<stream:stream[^>]*\bid=['\"][^'\"]+['\"][^>]*>|</stream:error>")
    stream_id = re.search(rb"\bid=['\"]([^'\"]+)['\"]", header)
    if b"<host-unknown" in header:
        raise OperationalError(_UNKNOWN)
    if stream_id is None:
        raise OperationalError("the server did not open a stream")
    if not may_disturb:
        return (
            "the server has this component; its secret is not tried while Redis does not say whether a bot is connected"
        )
    secret = settings.xmpp_password.get_secret_value().encode()
    digest = hashlib.sha1(stream_id[1] + secret, usedforsecurity=False).hexdigest()  # as XEP-0114 has it
    writer.write(f"<handshake>{digest}</handshake>".encode())
    answer = await _until(reader, rb"<handshake[^>]*>|</stream:error>")
    if b"<handshake" in answer:
        return "the secret is right; no bot is connected"
    if b"<conflict" in answer:
        return "the secret is right; a bot is connected"
    raise OperationalError(_REFUSED)


async def _client(settings: Settings, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    domain = settings.xmpp_jid.rpartition("@")[2]
    writer.write(_opening("jabber:client", domain))
    if b"urn:ietf:params:xml:ns:xmpp-tls" not in await _until(reader, rb"</stream:features>"):
        raise OperationalError("the server offers no STARTTLS")
    writer.write(b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>")
    await _until(reader, rb"<proceed[^>]*>")
    context = ssl.create_default_context(cafile=settings.xmpp_ca_file or None)
    await writer.start_tls(context, server_hostname=domain)
    return "STARTTLS works and the certificate is trusted"


def _opening(namespace: str, to: str) -> bytes:
    stream = "xmlns:stream='http://etherx.jabber.org/streams' version='1.0'"
    return f"<?xml version='1.0'?><stream:stream xmlns='{namespace}' {stream} to='{escape(to)}'>".encode()


async def _until(reader: asyncio.StreamReader, pattern: bytes) -> bytes:
    received = b""
    while not re.search(pattern, received):
        some = await reader.read(_READ_BYTES)
        if not some or len(received) > _READ_BYTES:
            raise OperationalError("the server ended the stream")
        received += some
    return received
