"""``coronet doctor``: checks of everything that a running Coronet needs, with advice.

Each check answers one question with a :class:`Finding`. No check disturbs what is running, and none takes longer than a
few seconds. What a check cannot reach is its answer, never an exception.

An XMPP login is tried as far as that disturbs no bot that is connected. Bots note in Redis when they heard from their
server last. Where none has, a component's handshake (XEP-0114 §3) is made in full: many a server would end a bot's
connection for it. A client account is checked up to STARTTLS and the certificate (RFC 6120 §5): a login would be one
more session that people's words may be brought to.
"""

import asyncio
import contextlib
import hashlib
import re
import resource
import ssl
import statistics
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from html import escape
from typing import Any, TypeVar

import msgspec
from rich.table import Table

from service.clock import Clock, SystemClock
from service.embedded.ports import says_ready
from service.errors import CoronetError, OperationalError, StoreIdentityMismatch, StoreUnavailable, Unreachable
from service.feeds.sandbox.parser_pool import ParserPool
from service.feeds.sandbox.protocol import Confinement, Document
from service.net.internal_clients import ProcessClient
from service.observability.logs import redacted
from service.settings import Settings
from service.store import Store, opened

FEWEST_FILES = 1024
OLDEST = (6, 2)
SLOW_S = 0.010
CLOCKS_APART_S = 2.0

_PINGS = 20
_FEED = b"<rss version='2.0'><channel><title>T</title><item><title>a</title></item></channel></rss>"
_NO_PARSER = "Workers read nothing without it. Raise the limits on memory and processes (`ulimit -v`, `ulimit -u`)."
_CONFINEMENTS: dict[Confinement | None, str] = {
    "seccomp": "no files and no network, by a seccomp filter",
    "rlimits": "no files and no network, by resource limits only: this kernel takes no seccomp filter of ours",
}
_LOGIN_ADVICE = (
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
_XMPP_WITHIN_S = 5.0
_READ_BYTES = 16_384
_PORTS = {"component": 5347, "client": 5222}

_Read = TypeVar("_Read")


class Finding(msgspec.Struct, frozen=True):
    """One thing that is as it should be, or is not; ``advice`` says what to do about the latter."""

    about: str
    ok: bool
    seen: str
    advice: str = ""


async def examine(settings: Settings) -> list[Finding]:
    """Make every check that concerns the program that the settings are for."""
    clock, program = SystemClock(), settings.program
    checks = [check_store(settings, clock)]
    if program != "worker":
        checks.append(check_bots(settings))
    if program in {"", "bot"}:
        checks.append(_xmpp(settings, clock))
    if program in {"", "console"}:
        checks.append(check_console(settings))
    found = await asyncio.gather(*checks, check_parser())
    return [*(finding for findings in found for finding in findings), check_file_limit()]


async def _xmpp(settings: Settings, clock: Clock) -> list[Finding]:
    return await check_xmpp(settings, await bots_silent_s(settings, clock))


def as_text(findings: Sequence[Finding]) -> str:
    """Return the findings, each on a line, with advice below what is not as it should be."""
    lines = []
    for finding in findings:
        lines.append(f"{'ok ' if finding.ok else 'BAD'}  {finding.about:<18}{finding.seen}")
        if not finding.ok:
            lines.append(f"     {'':<18}→ {finding.advice}")
    return "\n".join(lines)


def settings_table(settings: Settings, origins: Mapping[str, str]) -> Table:
    """Return every setting's effective value and where it came from; secrets are hidden."""
    table = Table("Setting", "Value", "From", box=None)
    for name, value in settings:
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        table.add_row(name, redacted(shown, ()), origins[name])
    return table


async def check_store(settings: Settings, clock: Clock) -> list[Finding]:
    """Look at Redis and at the ring of workers in it."""
    try:
        async with opened(settings) as store:
            info = _parsed(await store.redis.call("INFO"))
            return [*server(info), await _latency(store, clock), await _clocks(store, clock), await _workers(store)]
    except StoreIdentityMismatch as error:
        advice = "Find out what happened to Redis's data first: its log says what it loaded, and from where."
        return [Finding("Store", ok=False, seen=str(error), advice=advice)]
    except StoreUnavailable as error:
        advice = "Start Redis, or set CORONET_REDIS_URL; for a running `coronet up`, name its directory with --state."
        return [Finding("Redis", ok=False, seen=str(error), advice=advice)]


async def bots_silent_s(settings: Settings, clock: Clock) -> dict[str, float] | None:
    """Return for how long (s) each address's bot has not heard from its server; None if Redis is away."""
    addresses = dict.fromkeys((settings.xmpp_jid, *settings.xmpp_shards))

    async def read(store: Store) -> dict[str, float]:
        return {each: clock.wall_s() - await store.inbound_log.listened(each) for each in addresses}

    return await _from_store(settings, read)


async def check_bots(settings: Settings) -> list[Finding]:
    """Ask every bot that said within the last minute that it lives; nothing if Redis, which knows them, is away."""
    urls = await _from_store(settings, lambda store: store.bot_endpoints.metrics_urls())
    if urls is None:
        return []
    async with ProcessClient() as processes:
        return [judged(await asyncio.gather(*(_why_not_ready(processes, url) for url in urls)))]


async def _from_store(settings: Settings, read: Callable[[Store], Awaitable[_Read]]) -> _Read | None:
    """Return what a function reads from the store; None if that is unavailable."""
    try:
        async with opened(settings) as store:
            return await read(store)
    except StoreUnavailable:
        return None


def judged(whys: Sequence[str]) -> Finding:
    """Judge the bots by why each of them cannot do its work, "" if it can."""
    well = sum(not why for why in whys)
    seen = f"{well} ready"
    if well < len(whys):
        seen += f", {len(whys) - well} not: {' '.join(dict.fromkeys(filter(None, whys)))}"
    advice = "Look into its log." if whys else "Start at least one: `coronet bot`. Until then nobody is told anything."
    return Finding("Bots", ok=0 < well == len(whys), seen=seen, advice=advice)


async def _why_not_ready(processes: ProcessClient, metrics_url: str) -> str:
    try:
        return await processes.why_not_ready(metrics_url.removesuffix("/metrics"))
    except Unreachable:
        return "one does not answer"


def check_file_limit() -> Finding:
    """See whether enough files (that is, connections) may be open at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= FEWEST_FILES
    advice = f"Raise it to {FEWEST_FILES} or more: `ulimit -n 4096`, or LimitNOFILE= in a systemd unit."
    return Finding("Open files", ok=enough, seen=f"at most {soft}", advice=advice)


async def check_parser() -> list[Finding]:
    """Read a document in a parser process, and see what keeps that from files and network."""
    try:
        async with ParserPool(1) as parsers:
            await parsers.parse_document(Document(_FEED, "https://example.org/", {}))
            return [Finding("Parser", ok=True, seen=_CONFINEMENTS[parsers.confinement])]
    except CoronetError as error:
        return [Finding("Parser", ok=False, seen=str(error), advice=_NO_PARSER)]


async def check_console(settings: Settings) -> list[Finding]:
    """Ask the console's ``/readyz``; it is looked for on this machine."""
    ready = settings.console_port != 0 and await says_ready(settings.console_port)
    seen = f"port {settings.console_port} {'is ready' if ready else 'does not say that it is ready'}"
    return [Finding("Console", ok=ready, seen=seen, advice="Start it (`coronet console`), or look into its log.")]


def server(info: dict[str, str]) -> list[Finding]:
    """Judge what Redis says of itself (the fields of INFO)."""
    version = info.get("redis_version", "0")
    keeps = info.get("aof_enabled") == "1"
    written = info.get("aof_last_write_status", "ok")
    refused = int(info.get("unexpected_error_replies", "0"))
    policy = info.get("maxmemory_policy", "noeviction")
    return [
        Finding(
            "Redis version",
            ok=tuple(int(part) for part in version.split(".")[:2]) >= OLDEST,
            seen=version,
            advice="Coronet needs Redis 6.2 or later.",
        ),
        Finding(
            "Redis persistence",
            ok=keeps and written == "ok",
            seen=f"append-only file {'on' if keeps else 'off'}, last write {written}",
            advice="Set `appendonly yes`, and see that its disk is not full: else a crash loses subscriptions.",
        ),
        Finding(
            "Redis replay",
            ok=refused == 0,
            seen=f"{refused} commands refused when the append-only file was loaded",
            advice="What they wrote is missing. Redis replays the file as the user `default`: write `user default reset"
            " ~* &* +@all` into its ACL file (compose/bootstrap.py does), and restart it before it rewrites the file.",
        ),
        Finding(
            "Redis memory",
            ok=policy == "noeviction",
            seen=f"{info.get('used_memory_human', '?')} used, maxmemory-policy {policy}",
            advice="Set `maxmemory-policy noeviction`: any other one throws subscriptions away when memory is short.",
        ),
    ]


async def _latency(store: Store, clock: Clock) -> Finding:
    took_s = []
    for _ in range(_PINGS):
        since_s = clock.monotonic_s()
        await store.ping()
        took_s.append(clock.monotonic_s() - since_s)
    median_s = statistics.median(took_s)
    advice = "Put Redis nearer, or give its machine some rest."
    return Finding("Redis latency", ok=median_s < SLOW_S, seen=f"{median_s * 1000:.2f} ms", advice=advice)


async def _clocks(store: Store, clock: Clock) -> Finding:
    seconds, microseconds = await store.redis.call("TIME")
    apart_s = abs(int(seconds) + int(microseconds) / 1e6 - clock.wall_s())
    advice = "Set the clocks by NTP: dates in messages would be wrong."
    return Finding("Clocks", ok=apart_s < CLOCKS_APART_S, seen=f"{apart_s:.2f} s apart from Redis's", advice=advice)


async def _workers(store: Store) -> Finding:
    workers = len(await store.ring.view())
    advice = "Start at least one: `coronet worker`. Until then nothing is polled."
    return Finding("Workers", ok=workers > 0, seen=f"{workers} in the ring", advice=advice)


def _parsed(info: Any) -> dict[str, str]:
    if isinstance(info, dict):
        return {str(name): str(value) for name, value in info.items()}
    lines = (line for line in info.decode().splitlines() if ":" in line)
    return dict(line.split(":", 1) for line in lines)


async def check_xmpp(settings: Settings, silent_s: Mapping[str, float] | None) -> list[Finding]:
    """Try to log in as each address, and say how it went.

    ``silent_s`` is for how long (s) the bot of each address has not heard from its server; None if nobody knows.
    """
    if settings.xmpp_login == "client":
        about_shards = "xmpp_shards is for components: without it, bots with an account share its people out."
        unused = Finding("XMPP addresses", ok=False, seen="an account has one address", advice=about_shards)
        return [await _check_login(settings, silent_s), *([unused] if settings.xmpp_shards else ())]
    addresses = dict.fromkeys((settings.xmpp_jid, *settings.xmpp_shards))
    each = [settings.model_copy(update={"xmpp_jid": address}) for address in addresses]
    findings = list(await asyncio.gather(*(_check_login(one, silent_s) for one in each)))
    domains = Counter(address.rpartition("@")[2] for address in addresses)
    shared = [domain for domain, count in domains.items() if count > 1]
    if shared:
        seen = f"several at {', '.join(shared)}"
        advice = "Give each address a component of its own: of two connections of one component a server ends one."
        findings.append(Finding("XMPP addresses", ok=False, seen=seen, advice=advice))
    return findings


async def _check_login(settings: Settings, silent_s: Mapping[str, float] | None) -> Finding:
    address, domain = settings.xmpp_jid, settings.xmpp_jid.rpartition("@")[2]
    host, port = settings.xmpp_host or domain, settings.xmpp_port or _PORTS[settings.xmpp_login]
    where = f"{address} at {host}:{port}"
    served = [each for each, silent in (silent_s or {}).items() if silent < CONNECTED_WITHIN_S]
    if address in served:
        return Finding("XMPP login", ok=True, seen=f"{where}: a bot is connected")
    try:
        async with asyncio.timeout(_XMPP_WITHIN_S):
            async with _connected(host, port) as (reader, writer):
                if settings.xmpp_login == "client":
                    seen = await _try_client(settings, reader, writer)
                else:
                    seen = await _try_component(settings, reader, writer, may_disturb=silent_s is not None)
    except TimeoutError:
        seen, advice = f"no answer within {_XMPP_WITHIN_S:g} s", "Is it an XMPP server's port of this kind of login?"
    except (OSError, OperationalError) as error:
        seen, advice = str(error), _ADVICE.get(str(error), _LOGIN_ADVICE).format(domain=domain)
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


async def _try_component(
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


async def _try_client(settings: Settings, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
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
