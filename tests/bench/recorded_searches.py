"""The commands of searches, recorded between an asker and Redis, and sent to Redis again at a fixed rate.

One Redis serves more searches than the processor of a small machine can ask. A process that sends recorded commands
needs a fraction of the time of one that asks.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import hiredis
import uvloop

CONNECTIONS: Final = 16

RecordedSearch = list[tuple[bytes, int]]
"""The packed commands of each round trip of a search, and their number."""


async def record(url: str, socket: Path, searches: Sequence[Callable[[], Awaitable[object]]]) -> list[RecordedSearch]:
    """Run ``searches`` one after another, and return the commands that each of them sends.

    They must connect to ``socket``, from which everything is forwarded to the Redis at ``url``.
    """
    sent = list[bytes]()

    async def forward(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, keep: Callable[[bytes], None]
    ) -> None:
        while data := await reader.read(1 << 20):
            keep(data)
            writer.write(data)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_redis = await asyncio.open_unix_connection(urlsplit(url).path)
        await asyncio.gather(forward(reader, to_redis[1], sent.append), forward(to_redis[0], writer, lambda _: None))

    recorded = list[RecordedSearch]()
    server = await asyncio.start_unix_server(serve, socket)
    try:
        for search in searches:
            sent.clear()
            await search()
            recorded.append([(batch, _count_commands(batch)) for batch in sent])
            assert sum(count for _, count in recorded[-1]) == _count_commands(b"".join(sent)), "a command was divided"
    finally:
        server.close()
    return recorded


def _count_commands(packed: bytes) -> int:
    """Return the number of whole commands in ``packed``."""
    reader = hiredis.Reader(notEnoughData=None)
    reader.feed(packed)
    return sum(1 for _ in iter(reader.gets, None))


def replay(url: str, searches: Sequence[RecordedSearch], rate: float, seconds: float) -> tuple[list[float], float]:
    """Send the commands of ``searches`` again for ``seconds``, ``rate`` searches a second.

    Return the duration of each search, and how long all of them took (s). A search that has to wait for a connection
    counts as slow (open loop). This function blocks, and is meant to run in a process of its own.
    """

    async def run() -> tuple[list[float], float]:
        began_s, took_s = time.perf_counter(), list[float]()
        numbers = iter(range(int(rate * seconds)))

        async def connection() -> None:
            reader, writer = await asyncio.open_unix_connection(urlsplit(url).path, limit=1 << 20)
            for number in numbers:
                due_s = began_s + number / rate
                await asyncio.sleep(due_s - time.perf_counter())
                for packed, count in searches[number % len(searches)]:
                    writer.write(packed)
                    await _read_replies(reader, count)
                took_s.append(time.perf_counter() - due_s)
            writer.close()

        await asyncio.gather(*(connection() for _ in range(CONNECTIONS)))
        return took_s, time.perf_counter() - began_s

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


async def _read_replies(reader: asyncio.StreamReader, count: int) -> None:
    replies = hiredis.Reader(notEnoughData=reader)
    while count:
        replies.feed(await reader.read(1 << 20))
        while count and (reply := replies.gets()) is not reader:
            assert not isinstance(reply, hiredis.ReplyError), reply
            count -= 1
