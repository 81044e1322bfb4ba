"""Redis: there, new enough, keeping what it is given, quick, of our time; and who works for it, or did lately."""

import statistics
from typing import Any

from service.clock import Clock
from service.doctor.finding import Finding
from service.errors import StoreRefused, StoreUnavailable
from service.settings import Settings
from service.store import Store, connect

OLDEST = (6, 2)
SLOW_S = 0.010
CLOCKS_APART_S = 2.0
_PINGS = 20


async def check_store(settings: Settings, clock: Clock) -> list[Finding]:
    """Look at Redis and at the ring of workers in it."""
    try:
        store = await connect(settings)
    except StoreRefused as error:
        return [_refused(error)]
    except StoreUnavailable as error:
        advice = "Start Redis, or set CORONET_REDIS_URL; for a running `coronet up`, name its directory with --state."
        return [Finding("Redis", ok=False, seen=str(error), advice=advice)]
    try:
        info = _parsed(await store.link.call("INFO"))
        return [*server(info), await _latency(store, clock), await _clocks(store, clock), await _workers(store)]
    except StoreRefused as error:
        return [_refused(error)]
    except StoreUnavailable as error:
        return [Finding("Redis", ok=False, seen=str(error), advice="Try again; look into its log if it stays away.")]
    finally:
        await store.close()


async def bots_silent_s(settings: Settings, clock: Clock) -> dict[str, float] | None:
    """Return for how long (s) each address's bot has not heard from its server; None if Redis is away."""
    try:
        store = await connect(settings)
    except StoreUnavailable:
        return None
    addresses = dict.fromkeys((settings.xmpp_jid, *settings.xmpp_shards))
    try:
        return {each: clock.wall_s() - await store.heard.listened(each) for each in addresses}
    except StoreUnavailable:
        return None
    finally:
        await store.close()


def _refused(error: StoreRefused) -> Finding:
    advice = "Find out what happened to Redis's data first: its log says what it loaded, and from where."
    return Finding("Store", ok=False, seen=str(error), advice=advice)


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
