"""Checks of Redis: connection, version, persistence, memory, latency and clock, and the number of nodes in the ring."""

import statistics
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from service.clock import Clock, SystemClock
from service.errors import CredentialUnreadable, StoreIdentityMismatch, StoreUnavailable
from service.net.credential_vault import NO_KEY, CredentialVault
from service.operations.doctor.report import CheckResult
from service.operations.store_metrics import RedisInfo, read_infos
from service.settings import Settings
from service.store import Store, opened

MIN_REDIS_VERSION = (6, 2)
MAX_REDIS_LATENCY_S = 0.010
MAX_CLOCK_DIFFERENCE_S = 2.0
_PING_COUNT = 20
_CREDENTIAL_SAMPLE = 100
SYSTEM_CLOCK: Final = SystemClock()
_Value = TypeVar("_Value")


async def check_store(settings: Settings, clock: Clock = SYSTEM_CLOCK) -> list[CheckResult]:
    """Check Redis, its response time, its clock, and whether the fleet has any nodes.

    Redis's clock is compared with the clock of this machine.
    """
    try:
        async with opened(settings) as store:
            info = (await read_infos(store))[0]
            return [
                *judge_redis(info),
                await _check_latency(store, clock),
                await _check_clocks(store, clock),
                await _check_workers(store),
                await check_credentials(store, settings),
            ]
    except StoreIdentityMismatch as error:
        advice = "First find out what happened to Redis's data: its log says which file it loaded."
        return [CheckResult("Store", ok=False, details=str(error), advice=advice)]
    except StoreUnavailable as error:
        advice = "Start Redis, or correct its URL (setting redis_url) and its password (redis_password)."
        return [CheckResult("Redis", ok=False, details=str(error), advice=advice)]


async def read_store(settings: Settings, read: Callable[[Store], Awaitable[_Value]]) -> _Value | None:
    """Return the result of calling ``read`` with the store; None if the store is unavailable."""
    try:
        async with opened(settings) as store:
            return await read(store)
    except StoreUnavailable:
        return None


def judge_redis(info: RedisInfo) -> list[CheckResult]:
    """Check the version, persistence and memory policy of Redis, and whether it restored all its data after a restart.

    ``info`` contains the fields of the reply to the INFO command.
    """
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


async def check_credentials(store: Store, settings: Settings) -> CheckResult:
    """Check that the stored logins of private feeds can be decrypted with the key in ``settings``."""
    vault, stored, failed = CredentialVault(settings), await store.credentials.sample(_CREDENTIAL_SAMPLE), 0
    for url, sealed in stored:
        try:
            vault.open(sealed, url)
        except CredentialUnreadable:
            failed += 1
    details = f"{failed} of {len(stored)} stored logins cannot be decrypted" if failed else "can be decrypted"
    if not vault.has_key:
        details = f"no key, {len(stored)} stored" if stored else NO_KEY
    advice = "Set credentials_key to the key that was used before, for all programs; or have the logins sent again."
    return CheckResult("Logins of feeds", ok=not failed, details=details, advice=advice)


async def _check_workers(store: Store) -> CheckResult:
    workers = len(await store.ring.nodes())
    advice = "Start one: `coronet worker` (or `serve`). Without it, nothing is polled."
    return CheckResult("Workers", ok=workers > 0, details=f"{workers} in the ring", advice=advice)
