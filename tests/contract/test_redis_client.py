"""The Redis client: errors, retries, cancellation and closing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import repeat
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from service.errors import StoreUnavailable
from service.feeds.entries.version_parts import VersionParts
from service.settings import Settings
from service.store import Store
from service.store.client import keys
from service.store.client.node_connections import Command
from service.store.client.redis_client import _PROMPT_CONNECTIONS, MAX_BLOCK_S, RedisClient, script_command
from tests.support.channels import make_channel
from tests.support.redis_nodes import on_every_node
from tests.support.waiting import until, until_so

ALICE = "alice@localhost"
UID = keys.user_id(ALICE)


@pytest.mark.parametrize("steps", range(24))
async def test_a_cancelled_command_ends_cancelled_at_any_step(redis_url: str, steps: int) -> None:
    link = RedisClient(Settings(redis_url=redis_url))
    command = asyncio.create_task(link.call("GET", "nothing"))
    for _ in repeat(None, steps):
        await asyncio.sleep(0)
    too_late = command.done()
    command.cancel()
    await asyncio.wait([command])
    assert command.cancelled() != too_late
    await link.close()


@pytest.mark.parametrize("steps", range(24))
async def test_a_cancelled_caller_stops_waiting_at_any_step(redis_url: str, steps: int) -> None:
    link = RedisClient(Settings(redis_url=redis_url))
    waiting = asyncio.create_task(link.call_blocking("BLPOP", "nothing", 0))
    for _ in repeat(None, steps):
        await asyncio.sleep(0)
    waiting.cancel()
    await until_so(waiting.done, "it is cancelled", within_s=MAX_BLOCK_S - 1.0)
    assert waiting.cancelled()
    await link.close()


@pytest_asyncio.fixture
async def link(clean_redis: str) -> AsyncIterator[RedisClient]:
    ready = RedisClient(Settings(redis_url=clean_redis))
    yield ready
    await ready.close()


@contextlib.asynccontextmanager
async def configured(link: RedisClient, name: str, value: str, usual: str) -> AsyncIterator[None]:
    await link.call("CONFIG", "SET", name, value)
    try:
        yield
    finally:
        await link.call("CONFIG", "SET", name, usual)


@pytest.mark.parametrize(("name", "value"), [("maxmemory", "1"), ("min-replicas-to-write", "1")])
async def test_a_redis_that_refuses_writes_is_unavailable_for_all_calls(
    link: RedisClient, name: str, value: str
) -> None:
    """Redis is full or lacks replicas: plain commands, scripts and pipelines raise StoreUnavailable."""
    take = script_command("usage_count", [keys.site_budget("example.org")], 5, 60_000)
    async with configured(link, name, value, "0"):
        for asked in (
            link.call("SET", "a", "b"),
            link.call(*take),
            link.call_many([("SET", "a", "b")]),
            link.call_many([take]),
        ):
            with pytest.raises(StoreUnavailable):
                await asked


@contextlib.asynccontextmanager
async def losing_an_answer(redis_url: str, directory: Path, command_part: bytes) -> AsyncIterator[str]:
    """Yield the URL of a proxy that cuts the connection once, before the reply to a command."""
    lost = False

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal lost
        redis_reader, redis_writer = await asyncio.open_unix_connection(urlsplit(redis_url).path)
        with contextlib.closing(writer), contextlib.closing(redis_writer):
            while asked := await reader.read(1 << 20):
                redis_writer.write(asked)
                answer = await redis_reader.read(1 << 20)
                if command_part in asked and not lost:
                    lost = True
                    return
                writer.write(answer)

    socket = directory / "cut.sock"
    async with await asyncio.start_unix_server(serve, socket):
        yield f"unix://{socket}"


@contextlib.asynccontextmanager
async def opened(redis_url: str) -> AsyncIterator[Store]:
    store = Store(RedisClient(Settings(redis_url=redis_url)))
    try:
        yield store
    finally:
        await store.close()


async def test_a_claim_with_a_lost_reply_is_not_repeated(clean_redis: str, tmp_path: Path) -> None:
    """A second claim would take the next items, which would overtake the batch in flight."""
    async with losing_an_answer(clean_redis, tmp_path, b"XDEL") as url, opened(url) as store:
        channel = await make_channel(store)
        await store.subscriptions.subscribe(ALICE, channel.id)
        for version in (2, 3):
            await store.outbox.enqueue([UID], channel.id, version, 5.0, VersionParts())
        with pytest.raises(StoreUnavailable):
            await store.outbox.claim([UID], 1, 6.0)
        ((batch,),) = (await store.outbox.in_flight([UID])).values()
        assert [item.version for item in batch.items] == [2]


async def test_any_number_of_concurrent_commands_get_replies(redis_url: str) -> None:
    link = RedisClient(Settings(redis_url=redis_url))
    assert await asyncio.gather(*(link.call("PING") for _ in range(500))) == [True] * 500
    await link.close()


async def test_a_heartbeat_does_not_wait_for_busy_connections(link: RedisClient, clean_redis: str) -> None:
    pools = link._prompt
    commands: list[Command] = [("BLPOP", f"nothing:{number}", "2") for number in range(_PROMPT_CONNECTIONS)]
    busy = [asyncio.create_task(pools.call_each([command])) for command in commands]

    async def all_wait() -> bool:
        return bool((await other.redis.call("INFO", "clients"))["blocked_clients"] == _PROMPT_CONNECTIONS)

    async with opened(clean_redis) as other:
        await until(all_wait, "no connection is left")
    ring = (keys.RING_NODES, keys.RING_LEASES, keys.RING_CHANGES)
    async with asyncio.timeout(1):
        assert (await link.run_urgent_script("ring_heartbeat", ring, "", 0, 0, 0))[2] > 0
    assert not any(task.done() for task in busy)
    for task in busy:
        task.cancel()
    await asyncio.wait(busy)


async def test_a_script_is_sent_once_and_again_after_redis_has_removed_it(store: Store) -> None:
    """Whether it is sent alone or in a pipeline."""
    channels = [await make_channel(store, f"https://example.org/{number}") for number in range(3)]

    async def listed() -> list[bool]:
        found = await store.channels.get_many([channel.id for channel in channels])
        return [channel is not None and channel.listed for channel in found]

    for value in ("1", "", "1"):
        commands = [script_command("channel_set_field", (keys.channel(each.id),), "listed", value) for each in channels]
        await on_every_node(store, "SCRIPT", "FLUSH")
        await store.redis.call_many(commands)
        assert await listed() == [bool(value)] * 3
        await on_every_node(store, "SCRIPT", "FLUSH")
        await store.redis.call(*commands[0])
        before = await evals(store)
        await store.redis.call_many(commands[:1])
        assert await evals(store) == before, "by its digest"


async def evals(store: Store) -> int:
    """Return how often scripts were sent in full."""
    return sum(
        stats.get("cmdstat_eval", {"calls": 0})["calls"] for stats in await on_every_node(store, "INFO", "commandstats")
    )


async def test_a_connection_that_redis_has_closed_is_replaced(link: RedisClient, clean_redis: str) -> None:
    other = RedisClient(Settings(redis_url=clean_redis))
    try:
        for _ in range(3):
            assert await link.call_many_once([("PING",)])
            await other.call("CLIENT", "KILL", "TYPE", "normal")
            await asyncio.sleep(0.01)
            assert await link.call_many_once([("PING",)]), "sent once, by a new connection"
    finally:
        await other.close()
