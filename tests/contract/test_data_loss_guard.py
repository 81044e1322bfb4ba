"""A Redis that lost data or belongs to another fleet is detected and not used.

Real servers are restarted over real files.
"""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from service.embedded.private_redis import PrivateRedis
from service.errors import StoreIdentityMismatch, StoreUnavailable
from service.settings import Settings, SettingsInvalid
from service.store import Store, open_store
from service.store.client import keys
from service.store.client.data_loss_guard import (
    BEHIND,
    EMPTIED,
    MAX_COUNTER_LAG,
    OTHER_FLEET,
    DataLossGuard,
    IdentityFile,
    StoreIdentity,
    TrustedIdentity,
    refusal_reason,
)
from service.tick_timer import TickTimer
from tests.support.channels import make_channel
from tests.support.redis_cluster import RedisCluster
from tests.support.waiting import until_so

ALICE = "alice@localhost"
Program = Callable[[], Store]


@pytest_asyncio.fixture
async def redis(tmp_path: Path) -> AsyncIterator[PrivateRedis]:
    async with PrivateRedis(tmp_path / "redis") as running:
        yield running


@contextlib.asynccontextmanager
async def programs(redis_url: str, file: Path | None = None) -> AsyncIterator[Program]:
    """Start programs that share an identity file if one is given; only their stores are used."""
    started: list[Store] = []

    def start() -> Store:
        started.append(open_store(Settings(redis_url=redis_url, store_identity_file=str(file or ""))))
        return started[-1]

    try:
        yield start
    finally:
        for store in started:
            await store.close()


@pytest_asyncio.fixture
async def start(redis: PrivateRedis) -> AsyncIterator[Program]:
    """Start programs without an identity file."""
    async with programs(redis.url) as one:
        yield one


@pytest_asyncio.fixture
async def start_with_file(redis: PrivateRedis, tmp_path: Path) -> AsyncIterator[Program]:
    """Start programs that share an identity file."""
    async with programs(redis.url, tmp_path / "identity.json") as one:
        yield one


async def _use(store: Store, steps: int = 100) -> None:
    """Increment the store's counter as in so many steps of time, and let the program read it."""
    await store.identity.refresh()
    await store.redis.call("HINCRBY", keys.STORE_IDENTITY, "counter", steps)
    await store.identity.refresh()


async def _run_for_a_moment(store: Store) -> None:
    """Run a program's monitor until it has saved the identity in the file."""
    watching = asyncio.create_task(store.identity.run(TickTimer(1.0)))
    file = store.redis.guard.file
    await until_so(
        lambda: file is not None and file.read() == store.redis.guard.trusted, "what was seen is in the file"
    )
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


async def _is_refused(store: Store) -> bool:
    try:
        await store.ping()
    except StoreIdentityMismatch:
        return True
    return False


async def _restart(redis: PrivateRedis, number: int = signal.SIGKILL, *, copy: Path | None = None) -> None:
    """Stop Redis with a signal, and restart it with its own data, or with ``copy``."""
    data = redis.directory / "appendonlydir"
    os.kill(redis.pid, number)
    if redis._child is not None:
        await redis._child.wait_for_exit()
    if copy is not None:
        shutil.rmtree(data)
        if copy.exists():
            shutil.copytree(copy, data)
    await redis.start()


NOTHING = Path("/nonexistent")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_program_continues_when_redis_restarts_with_its_data(
    redis: PrivateRedis, start: Program, number: int
) -> None:
    store = start()
    await _use(store)
    await store.redis.call("SET", "cn:{d}:waiting", "kept")
    await _restart(redis, number)
    assert await store.redis.call("GET", "cn:{d}:waiting") == b"kept"
    await store.identity.refresh()
    assert not await _is_refused(store)


async def test_no_command_reaches_an_emptied_redis(redis: PrivateRedis, start: Program) -> None:
    store = start()
    await _use(store)
    await _restart(redis, copy=NOTHING)
    commands = (
        store.redis.call("SET", "cn:{d}:waiting", "1"),
        store.redis.call_many([("SET", "cn:{d}:waiting", "1")]),
        store.redis.call_many_once([("SET", "cn:{d}:waiting", "1")]),
        store.redis.call_blocking("BLPOP", "cn:{d}:waiting", "0.1"),
        store.redis.run_urgent_script("counter_raise", ["cn:{d}:waiting"], 1, 60),
        store.outbox.count_waiting(),
    )
    for result in await asyncio.gather(*commands, return_exceptions=True):
        assert isinstance(result, StoreIdentityMismatch)
    assert "The store is empty" in str(result)
    async with programs(redis.url) as stranger:
        assert await stranger().redis.call("DBSIZE") == 0


async def test_a_starting_program_refuses_an_emptied_store(redis: PrivateRedis, start_with_file: Program) -> None:
    early, store = start_with_file(), start_with_file()
    await early.identity.refresh()
    await _use(store)
    await _run_for_a_moment(store)
    await _restart(redis, copy=NOTHING)
    assert await _is_refused(start_with_file())
    assert await _is_refused(early), "it has not seen enough itself"


async def test_a_starting_program_refuses_the_store_of_another_fleet(
    redis: PrivateRedis, start: Program, tmp_path: Path
) -> None:
    await _use(start())
    file = tmp_path / "other.json"
    file.write_text('{"fleet": "another"}')
    async with programs(redis.url, file) as ours:
        with pytest.raises(StoreIdentityMismatch, match="another fleet"):
            await ours().ping()
        await start().ping()


@pytest.mark.parametrize("was_running", [True, False])
async def test_an_older_copy_of_the_data_is_refused(
    redis: PrivateRedis, start_with_file: Program, tmp_path: Path, *, was_running: bool
) -> None:
    store = start_with_file()
    await _use(store)
    copy = shutil.copytree(redis.directory / "appendonlydir", tmp_path / "copy")
    await _use(store, MAX_COUNTER_LAG + 1)
    await _run_for_a_moment(store)
    await _restart(redis, copy=Path(copy))
    with pytest.raises(StoreIdentityMismatch, match="older than it was"):
        await (store if was_running else start_with_file()).ping()


async def test_a_program_continues_after_the_original_data_is_restored(
    redis: PrivateRedis, start: Program, tmp_path: Path
) -> None:
    store = start()
    await _use(store)
    copy = shutil.copytree(redis.directory / "appendonlydir", tmp_path / "copy")
    await _restart(redis, copy=NOTHING)
    assert await _is_refused(store)
    await _restart(redis, copy=Path(copy))
    await store.identity.refresh()
    assert not await _is_refused(store)


async def test_data_deleted_while_redis_runs_is_detected(clean_redis: str) -> None:
    async with programs(clean_redis) as begin:
        store = begin()
        channel = await make_channel(store)
        await store.subscriptions.subscribe(ALICE, channel.id)
        await _use(store)
        await store.redis.call("FLUSHALL")
        with pytest.raises(StoreIdentityMismatch):
            await store.subscriptions.of_user(ALICE)
        assert await _is_refused(store)


async def test_a_store_refused_by_one_program_is_refused_by_all(redis: PrivateRedis, start: Program) -> None:
    store = start()
    await _use(store)
    await _restart(redis, copy=NOTHING)
    await store.identity.refresh()
    newcomer = start()
    await newcomer.identity.refresh()
    assert await _is_refused(newcomer)
    assert newcomer.redis.guard.current.fleet == "", "it gives the store no identity of its own"


async def test_a_program_does_not_increment_the_counter_of_an_older_store(start: Program) -> None:
    store = start()
    await _use(store)
    await store.redis.call("HINCRBY", keys.STORE_IDENTITY, "counter", -MAX_COUNTER_LAG - 1)
    await store.redis.call("HSET", keys.STORE_IDENTITY, "grown_ms", 0)
    await store.identity.refresh()
    assert await _is_refused(store)


async def test_every_program_continues_when_the_operator_accepts_the_store(
    redis: PrivateRedis, start_with_file: Program
) -> None:
    running, stopped, console = start_with_file(), start_with_file(), start_with_file()
    await _use(stopped)
    await _use(running)
    await console.identity.refresh()
    seen = running.redis.guard.trusted
    await _restart(redis, copy=NOTHING)
    assert await _is_refused(running)
    await console.identity.refresh()
    await console.identity.accept()
    await running.identity.refresh()
    assert [await _is_refused(store) for store in (running, stopped, console, start_with_file())] == [False] * 4
    found = running.redis.guard.current
    assert seen is not None
    assert found.fleet == seen.fleet
    assert found.counter > seen.counter
    await _restart(redis, copy=NOTHING)
    assert await _is_refused(running)


async def test_programs_without_a_shared_file_continue_after_acceptance(redis: PrivateRedis, start: Program) -> None:
    """The console started after the loss, so that it does not know the fleet's id."""
    bot = start()
    await _use(bot)
    await _restart(redis, copy=NOTHING)
    console = start()
    await console.identity.refresh()
    await bot.identity.refresh()
    assert await _is_refused(bot)
    await console.identity.accept()
    await bot.identity.refresh()
    assert not await _is_refused(bot)


async def test_two_programs_that_start_together_agree(start: Program) -> None:
    one, other = start(), start()
    await asyncio.gather(one.identity.refresh(), other.identity.refresh())
    await asyncio.gather(one.ping(), other.ping())
    assert one.redis.guard.trusted == other.redis.guard.trusted


async def test_many_programs_increment_the_counter_as_slowly_as_one(start: Program) -> None:
    many = [start() for _ in range(5)]
    for store in many:
        await store.identity.refresh()
    assert many[-1].redis.guard.current.counter <= 2


async def test_a_cluster_is_refused_if_the_identity_is_lost(clean_cluster: RedisCluster) -> None:
    async with programs(clean_cluster.urls) as begin:
        store = begin()
        await _use(store)
        await store.redis.call_many([("SET", f"name:{number}", 1) for number in range(100)])
        assert not await _is_refused(store)
        await clean_cluster.clear()
        await store.identity.refresh()
        assert await _is_refused(store)
        with pytest.raises(StoreIdentityMismatch):
            await begin().redis.call_many([("SET", f"name:{number}", 1) for number in range(100)])


async def test_an_unavailable_redis_is_not_a_refused_store(redis: PrivateRedis, start: Program) -> None:
    store = start()
    await _use(store)
    await redis.stop()
    with pytest.raises(StoreUnavailable) as raised:
        await store.ping()
    assert not isinstance(raised.value, StoreIdentityMismatch)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (StoreIdentity("f", 10), ""),
        (StoreIdentity("f", 11), ""),
        (StoreIdentity("f", 10 - MAX_COUNTER_LAG), ""),  # what a power cut may take
        (StoreIdentity("f", 9 - MAX_COUNTER_LAG), BEHIND),
        (StoreIdentity("f", 1, accepted_ms=1_001), ""),
        (StoreIdentity("f", 1, accepted_ms=1_000), BEHIND),  # a copy of a store that was accepted once
        (StoreIdentity("g", 10, accepted_ms=1_001), OTHER_FLEET),
        (StoreIdentity(), EMPTIED),
        (StoreIdentity("f", 10, refused=BEHIND), BEHIND),
    ],
)
def test_the_refusal_reason_depends_on_the_identity_of_the_store(found: StoreIdentity, reason: str) -> None:
    assert refusal_reason(found, TrustedIdentity("f", 10, 1_000)) == reason


def test_an_unused_fleet_accepts_an_empty_store() -> None:
    assert refusal_reason(StoreIdentity(), TrustedIdentity("f")) == ""
    assert refusal_reason(StoreIdentity("g", 10), TrustedIdentity("f")) == OTHER_FLEET


def test_a_late_reply_is_not_reported_as_data_loss() -> None:
    """A stopped process reads the reply after other processes have incremented the counter."""
    guard = DataLossGuard("")
    guard.evaluate(StoreIdentity("f", 100, 1_000), TrustedIdentity())
    asked_with = guard.trusted
    guard.evaluate(StoreIdentity("f", 200, 2_000), asked_with)
    guard.evaluate(StoreIdentity("f", 101, 1_100), asked_with)
    guard.check()
    assert guard.trusted == TrustedIdentity("f", 200, 2_000)


def test_the_file_keeps_the_newest_identity(tmp_path: Path) -> None:
    file = IdentityFile(tmp_path / "identity.json")
    assert file.read() == TrustedIdentity()
    file.write(TrustedIdentity("f", 10, 2_000))
    file.write(TrustedIdentity("f", 9, 1_000))
    assert file.read() == TrustedIdentity("f", 10, 2_000)
    (tmp_path / "identity.json").write_text("{")
    with pytest.raises(SettingsInvalid, match=r"identity\.json"):
        file.read()
