"""Checks of Redis and who works on it, of the bots, of this machine, and of the console on it."""

import asyncio
import resource
import statistics
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from service.clock import Clock
from service.errors import CoronetError, StoreRefused, StoreUnavailable, Unreachable
from service.feeds.sandbox import ParserPool
from service.feeds.wire import Confinement, Document
from service.net.processes import Processes
from service.settings import Settings
from service.stack.ports import says_ready
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

_Read = TypeVar("_Read")


class Finding(msgspec.Struct, frozen=True):
    """One thing that is as it should be, or is not; ``advice`` says what to do about the latter."""

    about: str
    ok: bool
    seen: str
    advice: str = ""


class Health(msgspec.Struct, frozen=True):
    """What a bot says of itself: that it is ``ready``, or else ``why`` not ("" if it does not answer)."""

    ready: bool
    why: str = ""


async def check_store(settings: Settings, clock: Clock) -> list[Finding]:
    """Look at Redis and at the ring of workers in it."""
    try:
        async with opened(settings) as store:
            info = _parsed(await store.link.call("INFO"))
            return [*server(info), await _latency(store, clock), await _clocks(store, clock), await _workers(store)]
    except StoreRefused as error:
        advice = "Find out what happened to Redis's data first: its log says what it loaded, and from where."
        return [Finding("Store", ok=False, seen=str(error), advice=advice)]
    except StoreUnavailable as error:
        advice = "Start Redis, or set CORONET_REDIS_URL; for a running `coronet up`, name its directory with --state."
        return [Finding("Redis", ok=False, seen=str(error), advice=advice)]


async def bots_silent_s(settings: Settings, clock: Clock) -> dict[str, float] | None:
    """Return for how long (s) each address's bot has not heard from its server; None if Redis is away."""
    addresses = dict.fromkeys((settings.xmpp_jid, *settings.xmpp_shards))

    async def read(store: Store) -> dict[str, float]:
        return {each: clock.wall_s() - await store.heard.listened(each) for each in addresses}

    return await _from_store(settings, read)


async def check_bots(settings: Settings) -> list[Finding]:
    """Ask every bot that said within the last minute that it lives; nothing if Redis, which knows them, is away."""
    urls = await _from_store(settings, lambda store: store.bots.metrics_urls())
    if urls is None:
        return []
    async with Processes() as processes:
        return [judged(await asyncio.gather(*(_health(processes, url) for url in urls)))]


async def _from_store(settings: Settings, read: Callable[[Store], Awaitable[_Read]]) -> _Read | None:
    """Return what a function reads from the store; None if that is unavailable."""
    try:
        async with opened(settings) as store:
            return await read(store)
    except StoreUnavailable:
        return None


def judged(bots: Sequence[Health]) -> Finding:
    """Judge what bots say of themselves."""
    well = sum(bot.ready for bot in bots)
    whys = dict.fromkeys(bot.why or "one does not answer" for bot in bots if not bot.ready)
    seen = f"{well} ready" + (f", {len(bots) - well} not: {' '.join(whys)}" if whys else "")
    advice = "Look into its log." if bots else "Start at least one: `coronet bot`. Until then nobody is told anything."
    return Finding("Bots", ok=0 < well == len(bots), seen=seen, advice=advice)


async def _health(processes: Processes, metrics_url: str) -> Health:
    try:
        why = await processes.why_not_ready(metrics_url.removesuffix("/metrics"))
    except Unreachable:
        return Health(ready=False)
    return Health(ready=not why, why=why)


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
            await parsers.read(Document(_FEED, "https://example.org/", {}))
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
    seconds, microseconds = await store.link.call("TIME")
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
