"""The XMPP account: can the bot log in? Tried as far as that disturbs no bot that is logged in.

A component's handshake (XEP-0114 §3) is made in full only while no bot may have made it: a server that lets a bot's
successor in at once (as ours do, see docs/decisions/0007) would end the bot's session. A client account is checked up
to STARTTLS and the certificate (RFC 6120 §5): a login would be one more session that people's words may be brought to.
"""

import asyncio
import contextlib
import hashlib
import re
import ssl
from html import escape

from service.doctor.finding import Finding
from service.errors import OperationalError
from service.settings import Settings

_CHECK = (
    "Check xmpp_host, xmpp_port, xmpp_login, xmpp_jid, xmpp_password and xmpp_ca_file;"
    " for a running `coronet up`, name its directory with --state."
)
_WITHIN_S = 5.0
_READ_BYTES = 16_384
_PORTS = {"component": 5347, "client": 5222}


async def check_xmpp(settings: Settings, *, try_secret: bool) -> Finding:
    """Try the login, a component's only up to its secret unless this is to be tried; say how it went."""
    host = settings.xmpp_host or settings.xmpp_jid.rpartition("@")[2]
    port = settings.xmpp_port or _PORTS[settings.xmpp_login]
    try:
        async with asyncio.timeout(_WITHIN_S):
            reader, writer = await asyncio.open_connection(host, port)
            with contextlib.closing(writer):
                if settings.xmpp_login == "component":
                    seen = await _component(settings, reader, writer, try_secret=try_secret)
                else:
                    seen = await _client(settings, reader, writer)
    except TimeoutError:
        seen, advice = f"no answer within {_WITHIN_S:g} s", "Is it an XMPP server's port of this kind of login?"
    except (OSError, OperationalError) as error:
        seen, advice = str(error), _CHECK
    else:
        return Finding("XMPP login", ok=True, seen=f"{settings.xmpp_jid} at {host}:{port}: {seen}")
    return Finding("XMPP login", ok=False, seen=f"{settings.xmpp_jid} at {host}:{port}: {seen}", advice=advice)


async def _component(
    settings: Settings, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, try_secret: bool
) -> str:
    writer.write(_opening("jabber:component:accept", settings.xmpp_jid.rpartition("@")[2]))
    header = await _until(reader, rb"<stream:stream[^>]*>")
    stream_id = re.search(rb"id=['\"]([^'\"]+)['\"]", header)
    if stream_id is None:
        raise OperationalError("the server did not open a stream")
    if not try_secret:
        return "the server answers; the secret is left to the bots, which a login would disturb"
    secret = settings.xmpp_password.get_secret_value().encode()
    digest = hashlib.sha1(stream_id[1] + secret, usedforsecurity=False).hexdigest()  # as XEP-0114 has it
    writer.write(f"<handshake>{digest}</handshake>".encode())
    answer = await _until(reader, rb"<handshake[^>]*>|</stream:error>")
    if b"<handshake" in answer:
        return "the secret is right"
    if b"<conflict" in answer:  # told only after the secret was found right
        return "the secret is right; somebody is connected"
    raise OperationalError("the server refuses the secret")


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
