"""``coronet doctor``: checks of Redis, programs, the XMPP login and this machine, with advice for each problem.

Every check returns a :class:`CheckResult` and raises no exception if a server is unreachable. No check disturbs running
programs or takes longer than a few seconds.

The XMPP check must not end a bot's session. Bots record in Redis when they last received data from their server. The
handshake of a component (XEP-0114 §3) is completed only if no bot is connected, because many servers close an existing
connection of the same component. A client account is checked up to STARTTLS and the certificate (RFC 6120 §5): a
complete login would be another session, to which the server could route users' messages.
"""

import asyncio
import contextlib
import hashlib
import platform
import re
import resource
import ssl
import statistics
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from html import escape
from importlib.metadata import version
from itertools import chain
from typing import Final, Literal, TypeVar

import msgspec
from rich.table import Table

from service.clock import Clock, SystemClock
from service.corona.fleet_policy import FleetObjective, Levels
from service.corona.optimizer.poll_explanation import BindingConstraint
from service.embedded.ports import is_ready
from service.errors import CoronetError, OperationalError, StoreIdentityMismatch, StoreUnavailable, Unreachable
from service.feeds.sandbox.parser_client import ParserClient
from service.feeds.sandbox.protocol import Confinement, Document
from service.net.internal_clients import ProcessClient
from service.observability.secret_redaction import redacted
from service.operations.binding_constraints import BOUND_LABELS, bound_shares, one_bound_warning
from service.operations.store_metrics import RedisInfo, read_infos
from service.settings import Settings
from service.store import Store, opened

MIN_OPEN_FILES = 1024
MIN_REDIS_VERSION = (6, 2)
MAX_REDIS_LATENCY_S = 0.010
MAX_CLOCK_DIFFERENCE_S = 2.0

_PING_COUNT = 20
_SAMPLE_FEED = b"<rss version='2.0'><channel><title>T</title><item><title>a</title></item></channel></rss>"
_PARSER_ADVICE = "Workers cannot parse documents. Raise the limits of memory and processes (`ulimit -v`, `ulimit -u`)."
_CONFINEMENTS: dict[Confinement | None, str] = {
    "seccomp": "confined by a seccomp filter: no files, no network",
    "rlimits": "confined by resource limits only: no files, no network; this kernel supports no seccomp filter",
}
_LOGIN_ADVICE = (
    "Check the settings xmpp_host, xmpp_port, xmpp_login, xmpp_jid, xmpp_password and xmpp_ca_file;"
    " for a running `coronet up`, pass its directory with --state."
)
_UNKNOWN_COMPONENT = "the server has no such component"
_REJECTED = "the server rejects the secret"
_COMPONENT_ADVICE = {
    _UNKNOWN_COMPONENT: "Add the component {domain} to the server's configuration, or correct the address.",
    _REJECTED: "Configure the component {domain} with the password in xmpp_password; all components share it.",
}
BOT_SILENCE_LIMIT_S = 30.0
_XMPP_TIMEOUT_S = 5.0
_MAX_READ_BYTES = 16_384
_DEFAULT_PORTS = {"component": 5347, "client": 5222}
_CHANNELS_METRIC = re.compile(
    r'^coronet_(?:owned|planned)_channels\{(level|constraint)="([\w-]+)"\} (\d+(?:\.\d+)?)$', re.MULTILINE
)
_CLOCK: Final = SystemClock()

_Value = TypeVar("_Value")


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one check.

    If the result is not ``ok``, ``advice`` states how to fix the problem.
    """

    name: str
    ok: bool
    details: str
    advice: str = ""

    @property
    def severity(self) -> "Severity":
        """``ok``, ``warning`` if everything works for now, or ``error`` if something does not work."""
        return "ok" if self.ok else "warning" if self.name in _WARNINGS else "error"


Severity = Literal["ok", "warning", "error"]

_WARNINGS: Final = frozenset(("Redis latency", "Clocks", "Open files", "Polls"))
"""The checks whose failure is only a warning, because all programs still work."""

_MARKS: Final[Mapping[Severity, str]] = {"ok": "ok ", "warning": "!! ", "error": "BAD"}

EXIT_CODES: Final[Mapping[Severity, int]] = {"ok": 0, "error": 1, "warning": 3}


def worst_severity(results: Sequence[CheckResult]) -> Severity:
    """Return the severity of the most severe result; ``ok`` without results."""
    return max((result.severity for result in results), key=list(_MARKS).index, default="ok")


def as_json(results: Sequence[CheckResult]) -> bytes:
    """Return the results as a JSON object: ``severity`` is the worst one, ``checks`` has each result in order.

    A check has ``id``, ``severity``, ``details`` and ``advice``. An id, such as ``redis-memory``, does not change
    between versions. It occurs several times if several servers are checked.
    """
    checks = [
        {
            "id": each.name.lower().replace(" ", "-"),
            "severity": each.severity,
            "details": each.details,
            "advice": each.advice if not each.ok else "",
        }
        for each in results
    ]
    return msgspec.json.encode({"severity": worst_severity(results), "checks": checks})


async def examine(settings: Settings) -> list[CheckResult]:
    """Run the checks for the program in ``settings.program``, or all checks if that is empty."""
    program = settings.program
    checks = [check_store(settings), check_polling(settings)]
    if program != "worker":
        checks.append(check_bots(settings))
    if program in {"", "bot"}:
        checks.append(check_xmpp_logins(settings))
    if program in {"", "console"}:
        checks.append(check_console(settings))
    groups = await asyncio.gather(*checks, check_parser())
    versions = CheckResult("Version", ok=True, details=f"{version('coronet')}, Python {platform.python_version()}")
    return [versions, *chain.from_iterable(groups), check_file_limit()]


async def check_xmpp_logins(settings: Settings) -> list[CheckResult]:
    """Check the login of each configured XMPP address without disturbing a bot that is connected."""
    return await check_xmpp(settings, await bot_silences_s(settings))


def as_text(results: Sequence[CheckResult]) -> str:
    """Return the results as text with one line each; the advice follows the line of a failed check."""
    lines = []
    for result in results:
        lines.append(f"{_MARKS[result.severity]}  {result.name:<18}{result.details}")
        if not result.ok:
            lines.append(f"     {'':<18}→ {result.advice}")
    return "\n".join(lines)


def settings_table(settings: Settings, origins: Mapping[str, str]) -> Table:
    """Return a table of every setting's effective value and its source; secrets are hidden.

    ``origins`` has the source of each setting's value, by the setting's name.
    """
    table = Table("Setting", "Value", "From", box=None)
    for name, value in settings:
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        table.add_row(name, redacted(shown, ()), origins[name])
    return table


async def check_store(settings: Settings, clock: Clock = _CLOCK) -> list[CheckResult]:
    """Check Redis, the difference between its clock and this machine's, and the number of workers in the ring."""
    try:
        async with opened(settings) as store:
            info = (await read_infos(store))[0]
            return [
                *judge_redis(info),
                await _check_latency(store, clock),
                await _check_clocks(store, clock),
                await _check_workers(store),
            ]
    except StoreIdentityMismatch as error:
        advice = "First find out what happened to Redis's data: its log says which file it loaded."
        return [CheckResult("Store", ok=False, details=str(error), advice=advice)]
    except StoreUnavailable as error:
        advice = "Start Redis, or set CORONET_REDIS_URL; for a running `coronet up`, pass its directory with --state."
        return [CheckResult("Redis", ok=False, details=str(error), advice=advice)]


async def bot_silences_s(settings: Settings) -> dict[str, float] | None:
    """Return the seconds since each bot last received data, by its XMPP address; None if Redis is unavailable."""
    addresses = dict.fromkeys((settings.xmpp_jid, *settings.xmpp_shards))

    async def read(store: Store) -> dict[str, float]:
        return {each: _CLOCK.wall_s() - await store.inbound_log.caught_up_until_s(each) for each in addresses}

    return await _read_store(settings, read)


async def check_bots(settings: Settings) -> list[CheckResult]:
    """Check the readiness of every bot that has announced itself within the last minute; [] if Redis is unavailable."""
    urls = await _read_store(settings, lambda store: store.bot_endpoints.metrics_urls())
    if urls is None:
        return []
    async with ProcessClient() as processes:
        return [judge_bots(await asyncio.gather(*(_unreadiness(processes, url) for url in urls)))]


async def _read_store(settings: Settings, read: Callable[[Store], Awaitable[_Value]]) -> _Value | None:
    """Return the result of ``read`` on the store; None if the store is unavailable."""
    try:
        async with opened(settings) as store:
            return await read(store)
    except StoreUnavailable:
        return None


def judge_bots(reasons: Sequence[str]) -> CheckResult:
    """Return the result of checking all bots.

    ``reasons`` has, for each bot, the reason why it is not ready; "" means that it is ready.
    """
    ready = sum(not reason for reason in reasons)
    details = f"{ready} ready"
    if ready < len(reasons):
        details += f", {len(reasons) - ready} not: {' '.join(dict.fromkeys(filter(None, reasons)))}"
    advice = "See its log." if reasons else "Start `coronet bot` (or `serve`): nobody gets notifications without."
    return CheckResult("Bots", ok=0 < ready == len(reasons), details=details, advice=advice)


async def _unreadiness(processes: ProcessClient, metrics_url: str) -> str:
    try:
        return await processes.unready_reason(metrics_url.removesuffix("/metrics"))
    except Unreachable:
        return "one does not respond"


async def check_polling(settings: Settings) -> list[CheckResult]:
    """Check the channels' polling levels, and whether the polling policy has an effect, by the metrics of all workers.

    The result is [] if there are no workers or Redis is unavailable.
    """

    async def read(store: Store) -> tuple[set[str], FleetObjective]:
        urls = {node.metrics_url for node in await store.ring.nodes() if node.metrics_url}
        return urls, await store.fleet_policy.get() or settings.policy().objective

    urls, objective = await _read_store(settings, read) or (set[str](), FleetObjective())
    if not urls:
        return []
    async with ProcessClient(settings.metrics_token.get_secret_value()) as processes:
        texts = await asyncio.gather(*(_metrics(processes, url) for url in urls))
    channels = {"level": Counter[str](), "constraint": Counter[str]()}
    for label, value, count in chain.from_iterable(map(_CHANNELS_METRIC.findall, texts)):
        channels[label][value] += int(float(count))
    # A worker of another release may have other constraints.
    by_constraint = {each: count for each in BindingConstraint if (count := channels["constraint"][each])}
    return [judge_levels(objective.levels, +channels["level"], texts.count("")), judge_polling(by_constraint)]


async def _metrics(processes: ProcessClient, url: str) -> str:
    """Return the metrics of the process at ``url`` in text format; "" if the process does not return them."""
    with contextlib.suppress(Unreachable):
        return await processes.metrics(url)
    return ""


def judge_levels(levels: Levels, channels: Mapping[str, int], unread: int) -> CheckResult:
    """Return a result, which is always ``ok``, that states the number of channels at each polling level.

    ``channels`` has these numbers. ``levels`` is the policy's kind of levels. ``unread`` is the number of workers whose
    metrics could not be read.
    """
    kind = "any number of nodes" if levels is Levels.CONTINUOUS else f"base {levels}"
    counts = ", ".join(f"{channels[level]} at level {level}" for level in sorted(channels, key=int))
    details = f"{kind}; channels: {counts or 'none planned yet'}"
    if unread:
        details += f"; the metrics of {unread} of the workers cannot be read from here"
    return CheckResult("Polling levels", ok=True, details=details)


def judge_polling(channels: Mapping[BindingConstraint, int]) -> CheckResult:
    """Return the constraints on channels' polls, and a warning if nearly all channels have the same one.

    ``channels`` are the numbers of channels by the constraint that determines their number of polls.
    """
    shares = [f"{100 * share:.0f} % {BOUND_LABELS[bound]}" for bound, share in bound_shares(channels).items()]
    details = f"channels: {', '.join(shares)}" if shares else "no channels are planned yet"
    warning = one_bound_warning(channels)
    return CheckResult("Polls", ok=not warning, details=details, advice=warning)


def check_file_limit() -> CheckResult:
    """Check the limit on open files, which also limits connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = soft == resource.RLIM_INFINITY or soft >= MIN_OPEN_FILES
    advice = f"Raise the limit to {MIN_OPEN_FILES} or more: `ulimit -n 4096`, or LimitNOFILE= in a systemd unit."
    return CheckResult("Open files", ok=enough, details=f"at most {soft}", advice=advice)


async def check_parser() -> list[CheckResult]:
    """Check that a parser process starts and parses a document, and report how it is confined."""
    try:
        async with ParserClient() as parser:
            await parser.parse_document(Document(_SAMPLE_FEED, "https://example.org/", {}))
            return [CheckResult("Parser", ok=True, details=_CONFINEMENTS[parser.confinement])]
    except CoronetError as error:
        return [CheckResult("Parser", ok=False, details=str(error), advice=_PARSER_ADVICE)]


async def check_console(settings: Settings) -> list[CheckResult]:
    """Check ``/readyz`` of a console on this machine."""
    ready = settings.console_port != 0 and await is_ready(settings.console_port)
    details = f"port {settings.console_port} {'is ready' if ready else 'is not ready'}"
    return [
        CheckResult(
            "Console", ok=ready, details=details, advice="Start it (`coronet console` or `serve`), or see its log."
        )
    ]


def judge_redis(info: RedisInfo) -> list[CheckResult]:
    """Check the version, persistence and memory policy of Redis; ``info`` has the fields of its command INFO."""
    redis_version = info.get("redis_version", "0")
    keeps = info.get("aof_enabled") == "1"
    written = info.get("aof_last_write_status", "ok")
    refused = int(info.get("unexpected_error_replies", "0"))
    policy = info.get("maxmemory_policy", "noeviction")
    return [
        CheckResult(
            "Redis version",
            ok=tuple(int(part) for part in redis_version.split(".")[:2]) >= MIN_REDIS_VERSION,
            details=redis_version,
            advice="Coronet needs Redis 6.2 or later.",
        ),
        CheckResult(
            "Redis persistence",
            ok=keeps and written == "ok",
            details=f"append-only file {'on' if keeps else 'off'}, last write {written}",
            advice="Set `appendonly yes` and free disk space if it is full: otherwise a crash loses subscriptions.",
        ),
        CheckResult(
            "Redis replay",
            ok=refused == 0,
            details=f"{refused} commands refused when the append-only file was loaded",
            advice="The data of these commands is missing. Redis replays the file as the user `default`: put"
            " `user default reset ~* &* +@all` into its ACL file (see compose/bootstrap.py), and restart it before it"
            " rewrites the file.",
        ),
        CheckResult(
            "Redis memory",
            ok=policy == "noeviction",
            details=f"{info.get('used_memory_human', '?')} used, maxmemory-policy {policy}",
            advice="Set `maxmemory-policy noeviction`: any other policy deletes subscriptions when memory is short.",
        ),
    ]


async def _check_latency(store: Store, clock: Clock) -> CheckResult:
    durations_s = []
    for _ in range(_PING_COUNT):
        start_s = clock.monotonic_s()
        await store.ping()
        durations_s.append(clock.monotonic_s() - start_s)
    median_s = statistics.median(durations_s)
    advice = "Run Redis closer to this machine, or reduce the load on its machine."
    return CheckResult(
        "Redis latency", ok=median_s < MAX_REDIS_LATENCY_S, details=f"{median_s * 1000:.2f} ms", advice=advice
    )


async def _check_clocks(store: Store, clock: Clock) -> CheckResult:
    difference_s = abs(await store.redis.time_s() - clock.wall_s())
    advice = "Synchronise the clocks with NTP: otherwise dates in messages are wrong."
    return CheckResult(
        "Clocks", ok=difference_s < MAX_CLOCK_DIFFERENCE_S, details=f"{difference_s:.2f} s from Redis's", advice=advice
    )


async def _check_workers(store: Store) -> CheckResult:
    workers = len(await store.ring.nodes())
    advice = "Start one: `coronet worker` (or `serve`). Without it, nothing is polled."
    return CheckResult("Workers", ok=workers > 0, details=f"{workers} in the ring", advice=advice)


async def check_xmpp(settings: Settings, silences_s: Mapping[str, float] | None) -> list[CheckResult]:
    """Check the login of each configured XMPP address.

    ``silences_s`` has the seconds since the bot of each address last received data; None if Redis is unavailable.
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
        details, advice = str(error), _COMPONENT_ADVICE.get(str(error), _LOGIN_ADVICE).format(domain=domain)
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
    context = ssl.create_default_context(cafile=settings.xmpp_ca_file or None)
    await writer.start_tls(context, server_hostname=domain)
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
