"""Cost of searches as users send them: ``Searcher.find`` with ranking, on many public channels in one Redis.

Channels have titles, tags, authors, languages and latest entries; their invented words have a Zipf-Mandelbrot
distribution. They are registered with the words and attributes of their content names. Several processes, which are
configured as bots, ask for 1 to 3 words of a channel's title, of which one in ten is misspelt, and in one query of four
for an attribute. At first they ask as much as they can, each with eight queries at once; then at a fixed rate for all
processes together (open loop: a query that has to wait counts as slow). Prints JSON: queries per second, durations, and
per query the processor time and the commands of Redis.

Two processors cannot ask 1,000 queries a second, but one Redis can answer them. To measure this, the commands of
recorded searches are sent to Redis at a fixed rate (``--redis-rate``), while one process asks as a bot does.

``python -m tests.bench.bench_search [--channels N] [--askers N] [--queries N] [--rate N] [--redis-rate N]``
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from itertools import accumulate
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
import uvloop

from service.discovery.channel_description import describe_channel
from service.discovery.queries.query_parser import parse_query
from service.embedded.private_redis import PrivateRedis
from service.model import Channel, Entry, FeedMetadata, Validators
from service.process_memory import configure_memory
from service.search.searcher import Searcher
from service.settings import Settings
from service.store import Store, open_store
from service.store.channels.channel_records import Snapshot
from service.store.directory.matrix_directory import ContentName
from tests.bench import recorded_searches
from tests.bench.recorded_searches import RecordedSearch

AT_ONCE: Final = 500
SEARCHES_AT_ONCE: Final = 8
ASKED_BESIDE_PER_S: Final = 50.0
"""Queries per second of the process that asks while recorded searches are sent."""
WARM_UP: Final = 200
"""Queries of each process that are not measured: its copy of the vocabulary is read, and its caches are filled."""
LANGUAGES: Final = ("en", "de", "fr", "es", "pt", "ja")
REGISTERED_S: Final = 6 * 3600.0
WORDS: Final = 50_000
TAGS: Final = 5_000
SYLLABLES: Final = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "ol")]
_NOW_S: Final = 1_000.0


class ChannelMaker:
    """Makes channels with random texts, and queries for them."""

    def __init__(self) -> None:
        self._drawn = random.Random(11)  # noqa: S311 - repeatable, not secret
        self._words = ["".join(self._drawn.choices(SYLLABLES, k=self._drawn.randint(2, 4))) for _ in range(WORDS)]
        self._shares = np.cumsum((np.arange(WORDS) + 2.7) ** -1.07)
        self._tags = list(accumulate(1 / rank for rank in range(1, TAGS + 1)))

    def make(self, number: int) -> tuple[Channel, tuple[Entry, ...], FeedMetadata]:
        """Return a channel, its latest entries, and its feed's metadata."""
        language = self._drawn.choices(LANGUAGES, cum_weights=(40, 60, 75, 88, 95, 100))[0]
        tags = tuple(f"topic {tag}" for tag in self._drawn.choices(range(TAGS), cum_weights=self._tags, k=3))
        authors = (f"author {number % 7_919}",)
        latest = tuple(Entry(str(each), self._text(6), "", self._text(30), authors, tags[:1]) for each in range(3))
        url, title = f"https://{self._text(1)}{number}.example/feed.xml", self._text(self._drawn.randint(2, 5))
        channel = Channel(f"{number:040x}", url, title, listed=True, language=language, created_s=_NOW_S)
        return channel, latest, FeedMetadata(tags)

    def query(self, channel: Channel) -> str:
        """Return a query of a user who looks for a channel."""
        words = channel.title.split()
        asked = self._drawn.sample(words, min(len(words), self._drawn.randint(1, 3)))
        if self._drawn.random() < 0.1:
            asked[0] = f"{asked[0][:-1]}x"
        attribute = self._drawn.choice((f"lang={channel.language}", "type=feed", *[""] * 6))
        return f"{' '.join(asked)} {attribute}"

    def _text(self, count: int) -> str:
        drawn = [self._drawn.random() * self._shares[-1] for _ in range(count)]
        return " ".join(self._words[place] for place in np.searchsorted(self._shares, drawn).tolist())


async def fill(store: Store, maker: ChannelMaker, count: int) -> list[Channel]:
    """Create channels, register them as workers do, and return them."""
    made: list[Channel] = []
    for first in range(0, count, AT_ONCE):
        some = [maker.make(number) for number in range(first, min(count, first + AT_ONCE))]
        snapshots = [
            Snapshot(Validators(), b"", channel.title, "", language=channel.language, metadata=metadata, latest=latest)
            for channel, latest, metadata in some
        ]
        await asyncio.gather(
            *(
                store.channels.create(channel, snapshot, latest, _NOW_S)
                for (channel, latest, _), snapshot in zip(some, snapshots, strict=True)
            )
        )
        await store.channel_index.count([channel.id for channel, _, _ in some])  # as owners do; it stores their sites
        described = [
            describe_channel(channel, latest, metadata, channel.url.split("/")[2], 86_400.0, now_s=time.time())
            for channel, latest, metadata in some
        ]
        words: dict[str, str] = {}
        names = list[ContentName]()
        for (channel, _, _), description in zip(some, described, strict=True):
            words |= description.text.registered_words()
            names.append(ContentName(channel.id, description.pairs))
        await asyncio.gather(*(store.channels.set_content_name(name.id, 1, name.pairs) for name in names))
        await store.channel_directory.register(names, time.time() + REGISTERED_S)
        await store.channel_directory.vocabulary.add(words)
        made += [channel for channel, _, _ in some]
    return made


async def ask(url: str, texts: list[str], rate: float) -> dict[str, Any]:
    """Send queries with 8 at once, or ``rate`` a second if it is not 0; return their durations (s) and the costs."""
    store = open_store(Settings(redis_url=url))
    searcher = Searcher(store, 1)
    waiting, took_s, hits = iter(texts[WARM_UP:]), list[float](), 0

    async def search(text: str, began_s: float) -> None:
        nonlocal hits
        found = await searcher.find(parse_query(text, datetime.now(UTC).date()), "en")
        took_s.append(time.perf_counter() - began_s)
        hits += bool(found.hits)

    async def search_on() -> None:
        for text in waiting:
            await search(text, time.perf_counter())

    for text in texts[:WARM_UP]:
        await search(text, time.perf_counter())
    took_s.clear()
    hits = 0
    began_s, began_processor_s = time.perf_counter(), time.process_time()
    if rate:
        running = list[asyncio.Task[None]]()
        for number, text in enumerate(waiting):
            due_s = began_s + number / rate
            await asyncio.sleep(due_s - time.perf_counter())
            running.append(asyncio.create_task(search(text, due_s)))
        await asyncio.gather(*running)
    else:
        await asyncio.gather(*(search_on() for _ in range(SEARCHES_AT_ONCE)))
    costs = {"processor_s": time.process_time() - began_processor_s, "elapsed_s": time.perf_counter() - began_s}
    await store.close()
    return {"took_s": took_s, "hits": hits, **costs}


async def redis_costs(store: Store) -> tuple[float, int]:
    """Return the processor time that Redis has used (s), and the commands that it has run."""
    cpu, stats = await store.redis.call("INFO", "cpu"), await store.redis.call("INFO", "stats")
    return cpu["used_cpu_user"] + cpu["used_cpu_sys"], int(stats["total_commands_processed"])


async def measure_askers(store: Store, url: str, texts: list[list[str]], rate: float) -> dict[str, float]:
    """Ask from one process for each list of queries, ``rate`` a second in all, or as much as possible if it is 0."""
    before_s, commands = await redis_costs(store)

    async def run(own: list[str]) -> dict[str, Any]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.bench.bench_search", "--ask", url, "--rate", str(rate / len(texts))),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        told, _ = await process.communicate(json.dumps(own).encode())
        found: dict[str, Any] = json.loads(told)
        return found

    found = await asyncio.gather(*map(run, texts))
    after_s, commands_after = await redis_costs(store)
    took_ms = sorted(1000 * each for one in found for each in one["took_s"])
    sent = sum(map(len, texts))
    return {
        "queries_per_s": round(len(took_ms) / max(one["elapsed_s"] for one in found)),
        "p50_ms": round(took_ms[len(took_ms) // 2], 1),
        "p99_ms": round(took_ms[int(len(took_ms) * 0.99)], 1),
        "asker_processor_ms_per_query": round(1000 * sum(one["processor_s"] for one in found) / len(took_ms), 2),
        "redis_processor_ms_per_query": round(1000 * (after_s - before_s) / sent, 2),
        "redis_commands_per_query": round((commands_after - commands) / sent, 1),
        "share_with_hits": round(sum(one["hits"] for one in found) / len(took_ms), 3),
    }


async def record_searches(url: str, texts: list[str]) -> list[RecordedSearch]:
    """Return the commands of these searches, without those of the first ``WARM_UP``."""
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "recorded.sock"
        store = open_store(Settings(redis_url=f"unix://{socket}"))
        searcher = Searcher(store, 1)
        queries = [parse_query(text, datetime.now(UTC).date()) for text in texts]
        searches = [partial(searcher.find, query, "en") for query in queries]
        recorded = await recorded_searches.record(url, socket, searches)
        await store.close()
    return recorded[WARM_UP:]


async def measure_redis(store: Store, url: str, texts: list[list[str]], rate: float) -> dict[str, float]:
    """Ask from one process, while Redis gets the commands of recorded searches; ``rate`` searches a second in all."""
    recorded = await record_searches(url, texts[0])
    asked = texts[-1]
    seconds = len(asked) / ASKED_BESIDE_PER_S
    loop = asyncio.get_running_loop()
    before_s, _ = await redis_costs(store)
    began_s = time.perf_counter()
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        sent = loop.run_in_executor(pool, recorded_searches.replay, url, recorded, rate - ASKED_BESIDE_PER_S, seconds)
        found = await measure_askers(store, url, [asked], ASKED_BESIDE_PER_S)
        took_s, sent_for_s = await sent
    after_s, _ = await redis_costs(store)
    took_ms = sorted(1000 * each for each in took_s)
    return {
        "recorded_per_s": round(len(took_ms) / sent_for_s),
        "recorded_p50_ms": round(took_ms[len(took_ms) // 2], 1),
        "recorded_p99_ms": round(took_ms[int(len(took_ms) * 0.99)], 1),
        "asked_per_s": found["queries_per_s"],
        "asked_p50_ms": found["p50_ms"],
        "asked_p99_ms": found["p99_ms"],
        "redis_processor_s_per_s": round((after_s - before_s) / (time.perf_counter() - began_s), 2),
    }


async def measure(channels: int, askers: int, queries: int, rate: float, redis_rate: float) -> dict[str, Any]:
    """Return the costs of both loops, and those of recorded searches."""
    with tempfile.TemporaryDirectory() as folder:
        async with PrivateRedis(Path(folder)) as redis:
            store = open_store(Settings(redis_url=redis.url))
            maker = ChannelMaker()
            made = await fill(store, maker, channels)
            drawn = random.Random(12)  # noqa: S311 - repeatable, not secret
            texts = [[maker.query(drawn.choice(made)) for _ in range(queries + WARM_UP)] for _ in range(askers)]
            closed = await measure_askers(store, redis.url, texts, 0.0)
            opened = await measure_askers(store, redis.url, texts, rate)
            recorded = await measure_redis(store, redis.url, texts, redis_rate)
            await store.close()
    return {
        "channels": channels,
        "askers": askers,
        "closed_loop": closed,
        f"at_{rate:.0f}_per_s": opened,
        f"redis_at_{redis_rate:.0f}_per_s": recorded,
    }


def main() -> None:
    """Run the benchmark, or one of its asking processes, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--channels", type=int, default=100_000)
    parser.add_argument("--askers", type=int, default=4)
    parser.add_argument("--queries", type=int, default=5_000)
    parser.add_argument("--rate", type=float, default=1_000.0)
    parser.add_argument("--redis-rate", type=float, default=1_000.0)
    parser.add_argument("--ask", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.ask:
        configure_memory()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(ask(given.ask, json.load(sys.stdin), given.rate))
    else:
        found = asyncio.run(measure(given.channels, given.askers, given.queries, given.rate, given.redis_rate))
    sys.stdout.write(json.dumps(found, indent=None if given.ask else 1) + "\n")


if __name__ == "__main__":
    main()
