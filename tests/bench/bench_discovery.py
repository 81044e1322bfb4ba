"""Cost of search on one Redis: registrations of names, queries, and matching of entries with saved searches.

100,000 names of 12 pairs with the skew of feeds (Zipf) are registered through one process; then one process sends
concurrent queries of 1 to 4 pairs of a name, with limit 10, while maintenance runs.

With ``--channels N``, the memory of Redis is measured for N channels and three entries a day of each for three days. A
channel has 24 pairs; an entry has 9 attributes, 8 words of its title, and the 40 rarest of 120 words of its text. The
words of four languages are drawn as in long texts of a language (Gerlach and Altmann, "Stochastic Model for the
Vocabulary Growth in Natural Languages", Physical Review X 3, 2013): the frequency of a word falls with its rank up to
rank 7,873, and with the power 1.77 of the rank beyond. This vocabulary grows as that of news (90,000 entries of 120
words have 410,000 words). The growth of used_memory includes cells, names, and vocabulary; a full scan shows the bytes
of each kind of key, and the rest is Redis's tables of keys. 100,000 channels take at most ten times as much as 10,000:
there are more names a word.

Finally, without Redis, entries of 47 words are matched with 100,000 saved searches. One in ten is a phrase of two
words; the others have 1 to 4 pairs of an entry: words, tags, an author, a channel or a domain, with the same popularity
as in entries, including the most frequent ones. No search is for a language only. Prints JSON.

``python -m tests.bench.bench_discovery [--names N] [--queries N] [--standing N] [--channels N]``
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np

from service.discovery.content_names import DeclaredMetadata, entry_pairs
from service.discovery.queries.query import Condition, PairCondition, PhraseCondition, WordCondition
from service.discovery.queries.saved_searches import (
    QueryCondition,
    SavedSearchIndex,
    SearchableEntry,
    SearchCondition,
    matches,
)
from service.discovery.search_candidates import require_all
from service.embedded.private_redis import PrivateRedis
from service.model import Channel, Entry
from service.settings import Settings
from service.store import Store, open_store
from service.store.directory.matrix_balancer import MatrixBalancer
from service.store.directory.matrix_directory import ContentName, Directory

AT_ONCE = 500
ASKERS = 8
EXPIRES_S = time.time() + 21_600.0
UPKEEP_EVERY_S = 0.5
CHECKED = 200


class Zipf:
    """Random draws of ``count`` texts with a skewed distribution, the first being the most frequent."""

    def __init__(self, drawn: random.Random, form: str, count: int) -> None:
        self._drawn, self._texts = drawn, [form.format(number) for number in range(count)]
        self._weights = list(accumulate(1 / rank for rank in range(1, count + 1)))

    def some(self, count: int) -> list[str]:
        """Return distinct texts."""
        found: dict[str, None] = {}
        while len(found) < count:
            found.update(dict.fromkeys(self._drawn.choices(self._texts, cum_weights=self._weights)))
        return list(found)


def population(count: int) -> list[frozenset[str]]:
    """Return names of 12 pairs each."""
    drawn = random.Random(5)  # noqa: S311 - repeatable, not secret
    kinds, paces = Zipf(drawn, "type=kind{}", 2), Zipf(drawn, "updates=pace{}", 5)
    languages, ends = Zipf(drawn, "lang=l{}", 30), Zipf(drawn, "tld=t{}", 100)
    domains, authors = Zipf(drawn, "domain=site{}.example", 20_000), Zipf(drawn, "author=author {}", 30_000)
    tags, words = Zipf(drawn, "tag=tag {}", 5_000), Zipf(drawn, "word=word{}", 20_000)
    single = (kinds, paces, languages, ends, domains, authors)
    return [
        frozenset([one for each in single for one in each.some(1)] + ["status=ok"] + tags.some(2) + words.some(3))
        for _ in range(count)
    ]


async def measure_registration(store: Store, names: Sequence[frozenset[str]]) -> float:
    """Register all names in batches, two at a time; return names per second."""
    began_s = time.perf_counter()
    batches = iter(range(0, len(names), AT_ONCE))

    async def registrar() -> None:
        for first in batches:
            some = [
                ContentName(f"{first + at:040x}", dict.fromkeys(pairs, 1))
                for at, pairs in enumerate(names[first : first + AT_ONCE])
            ]
            await store.channel_directory.register(some, EXPIRES_S)

    await asyncio.gather(registrar(), registrar())
    return len(names) / (time.perf_counter() - began_s)


async def measure_queries(store: Store, queries: Sequence[frozenset[str]]) -> tuple[list[float], float, int]:
    """Send all queries concurrently; return their durations (s), queries per second, and the number of cells asked."""
    waiting, took_s, cells = list(queries), list[float](), 0
    began_s = time.perf_counter()

    async def asker() -> None:
        nonlocal cells
        while waiting:
            pairs = waiting.pop()
            asked_s = time.perf_counter()
            found = await store.channel_directory.find(require_all(pairs), (), 10)
            took_s.append(time.perf_counter() - asked_s)
            assert found.found, sorted(pairs)
            cells += sum(matrix.cells for matrix in found.queried)

    await asyncio.gather(*(asker() for _ in range(ASKERS)))
    return took_s, len(queries) / (time.perf_counter() - began_s), cells


async def maintain(store: Store) -> None:
    """Keep the matrices, like workers."""
    balancer = MatrixBalancer(store.channel_directory, store.redis_node_loads)
    while True:
        await asyncio.sleep(UPKEEP_EVERY_S)
        await balancer.maintain(lambda _: True)


async def finds_exactly(store: Store, names: Sequence[frozenset[str]], queries: Sequence[frozenset[str]]) -> bool:
    """Return whether queries without a limit find exactly the names that a full scan finds."""
    for pairs in queries:
        found = await store.channel_directory.find(require_all(pairs), (), len(names))
        if set(found.names) != {f"{n:040x}" for n, name in enumerate(names) if pairs <= name}:
            return False
    return True


def make_saved_searches(count: int) -> tuple[list[SearchCondition], list[SearchableEntry]]:
    """Return saved searches, one in ten a phrase, and entries."""
    drawn = random.Random(6)  # noqa: S311 - repeatable, not secret
    languages, domains = ["en", "de", "fr", "es", "pt"], Zipf(drawn, "site{}.example", 5_000)
    tags, words, authors = Zipf(drawn, "tag {}", 5_000), Zipf(drawn, "word{}", 20_000), Zipf(drawn, "a{}", 10_000)
    channels = [Channel(f"{n:040x}", f"https://{site}/feed") for n, site in enumerate(domains.some(500))]

    def entry(number: int) -> tuple[Entry, Channel, DeclaredMetadata]:
        title, text = " ".join(words.some(7)), " ".join(words.some(40))
        written = Entry(str(number), title, summary=text, authors=tuple(authors.some(1)), tags=tuple(tags.some(3)))
        return written, drawn.choice(channels), DeclaredMetadata(drawn.choice(languages))

    def query(number: int) -> SearchCondition:
        if number % 10 == 0:
            return QueryCondition(((PhraseCondition(tuple(words.some(2))),),))
        one, channel, traits = entry(number)
        own = entry_pairs(one, channel, traits, channel.url.split("/")[2])
        offered = [pair for pair in own if not pair.startswith(("host=", "tld="))]
        wanted = drawn.sample(offered, drawn.randint(1, 4))
        if wanted[0].startswith("lang=") and not wanted[1:]:
            return query(number)
        return QueryCondition(tuple((_condition(pair),) for pair in sorted(wanted)))

    made = [entry(number) for number in range(2_000)]
    subjects = [
        SearchableEntry(one, entry_pairs(one, channel, traits, channel.url.split("/")[2]))
        for one, channel, traits in made
    ]
    return [query(number) for number in range(count)], subjects


def _condition(pair: str) -> Condition:
    word = pair.removeprefix("word=")
    return PairCondition(pair) if word == pair else WordCondition(word)


def measure_matching(count: int) -> dict[str, float | bool]:
    """Return the entries per second that one core matches with saved searches, and whether the matches are exact."""
    queries, subjects = make_saved_searches(count)
    matcher = SavedSearchIndex()
    began_s = time.perf_counter()
    for number, wanted in enumerate(queries):
        matcher.put(str(number), wanted)
    put_s = time.perf_counter() - began_s
    began_s = time.process_time()
    hits = sum(len(matcher.match(subject)) for subject in subjects)
    rate = len(subjects) / (time.process_time() - began_s)
    equal = all(
        matcher.match(subject) == {str(n) for n, wanted in enumerate(queries) if matches(wanted, subject)}
        for subject in subjects[:20]
    )
    return {
        "standing_queries": count,
        "put_per_s": round(count / put_s),
        "entries_per_s": round(rate),
        "hits_per_entry": round(hits / len(subjects), 1),
        "equals_brute_force": equal,
    }


class LanguageWords:
    """Texts of random words of four languages; the number of a word is its rank by frequency in its language."""

    def __init__(self) -> None:
        self._drawn = np.random.default_rng(8)
        ranks, frequent = np.arange(1.0, 2_000_001), 7_873
        frequencies = np.where(ranks <= frequent, 1 / ranks, frequent**0.77 * ranks**-1.77)
        self._shares = np.cumsum(frequencies / frequencies.sum())

    def rarest(self, count: int, length: int) -> list[str]:
        """Return the rarest ``count`` distinct words of a text of ``length`` words."""
        language = self._drawn.choice(["en", "de", "fr", "es"], p=[0.55, 0.15, 0.15, 0.15])
        ranks = np.searchsorted(self._shares, self._drawn.random(length))
        return [f"{language}{rank:06}" for rank in np.unique(ranks)[::-1][:count].tolist()]


FAMILIES = {"cn:{m:": "cells", "cn:{nm:": "names", "cn:{words": "vocabulary", "": "others"}


async def bytes_by_family(store: Store) -> dict[str, int]:
    """Return the bytes of all keys of each kind, without Redis's tables of keys."""
    found, cursor = Counter[str](), 0
    while True:
        cursor, some = await store.redis.call("SCAN", cursor, "COUNT", 1_000)
        sizes = await store.redis.call_many([("MEMORY", "USAGE", key, "SAMPLES", 0) for key in some])
        for key, size in zip(some, sizes, strict=True):
            family = next(name for prefix, name in FAMILIES.items() if key.startswith(prefix.encode()))
            if family == "cells":
                family = "own hashes of cells" if key.count(b":") > 2 else "shared hashes of cells"
            found[family] += size or 0
            found[f"{family}: keys"] += 1
        if not cursor:
            return dict(sorted(found.items()))


async def used_memory(store: Store) -> int:
    return int((await store.redis.call("INFO", "memory"))["used_memory"])


async def measure_memory(channels: int) -> dict[str, object]:
    """Return the bytes of Redis for each channel and each entry."""
    words, drawn = LanguageWords(), random.Random(9)  # noqa: S311 - repeatable, not secret
    languages, tags, authors = (
        Zipf(drawn, "lang=l{}", 30),
        Zipf(drawn, "tag=tag {}", 5_000),
        Zipf(drawn, "author=a{}", 30_000),
    )
    ids = [f"{number:040x}" for number in range(channels)]

    def site(number: int) -> list[str]:
        return [f"host=site{number}.example", f"domain=site{number}.example", "tld=example", *languages.some(1)]

    def channel(number: int) -> ContentName:
        attributes = [*site(number), "type=feed", "status=ok", "updates=daily", "generator=wordpress", *tags.some(4)]
        return named(ids[number], [*attributes, *authors.some(2)], words.rarest(10, 12))

    def entry(number: int) -> ContentName:
        of = number % channels
        attributes = [f"channel={ids[of]}", *site(of), *tags.some(3), *authors.some(1)]
        return named(f"{ids[of]}/{number:08x}", attributes, words.rarest(8, 9) + words.rarest(40, 120))

    def named(name: str, attributes: list[str], own: list[str]) -> ContentName:
        return ContentName(
            name, dict.fromkeys(attributes, 9) | {f"word={word}": 1 + drawn.randrange(255) for word in own}
        )

    async def registered(directory: Directory, made: Callable[[int], ContentName], count: int) -> tuple[int, int]:
        """Return the bytes per name of all keys, and of the vocabulary alone."""
        before, of_words = await used_memory(store), 0
        for first in range(0, count, AT_ONCE):
            names = [made(number) for number in range(first, min(count, first + AT_ONCE))]
            await directory.register(names, EXPIRES_S)
            own = {pair.removeprefix("word=") for name in names for pair in name.pairs if pair.startswith("word=")}
            stored = await used_memory(store)
            await directory.vocabulary.add({word: word for word in own})
            of_words += await used_memory(store) - stored
        return (await used_memory(store) - before) // count, of_words // count

    with tempfile.TemporaryDirectory() as folder:
        async with PrivateRedis(Path(folder)) as redis:
            store = open_store(Settings(redis_url=redis.url))
            keeping = asyncio.create_task(maintain(store))
            per_channel, words_per_channel = await registered(store.channel_directory, channel, channels)
            per_entry, words_per_entry = await registered(store.entry_directory, entry, 9 * channels)
            keeping.cancel()
            total, families = await used_memory(store), await bytes_by_family(store)
            await store.close()
    return {
        "channels": channels,
        "entries": 9 * channels,
        "bytes_per_channel_name": per_channel,
        "vocabulary_bytes_per_channel_name": words_per_channel,
        "bytes_per_entry": per_entry,
        "vocabulary_bytes_per_entry": words_per_entry,
        "used_memory": total,
        "bytes_by_family": families,
    }


async def measure(names: int, queries: int) -> dict[str, object]:
    drawn = random.Random(7)  # noqa: S311 - repeatable, not secret
    made = population(names)
    asked = [frozenset(drawn.sample(sorted(drawn.choice(made)), drawn.randint(1, 4))) for _ in range(queries)]
    with tempfile.TemporaryDirectory() as folder:
        async with PrivateRedis(Path(folder)) as redis:
            store = open_store(Settings(redis_url=redis.url))
            before = int((await store.redis.call("INFO", "memory"))["used_memory"])
            keeping = asyncio.create_task(maintain(store))
            registered = await measure_registration(store, made)
            refreshed = await measure_registration(store, made[: names // 10])
            took_s, per_s, cells = await measure_queries(store, asked)
            keeping.cancel()
            is_exact = await finds_exactly(store, made, asked[:CHECKED])
            used = int((await store.redis.call("INFO", "memory"))["used_memory"]) - before
            largest = max(
                (size.partitions * size.replicas for size in (await store.channel_directory.matrix_sizes()).values()),
                default=1,
            )
            await store.close()
    took_ms = sorted(1000 * each for each in took_s)
    return {
        "names": names,
        "names_registered_per_s": round(registered),
        "names_refreshed_per_s": round(refreshed),
        "bytes_per_name": round(used / names),
        "cells_of_the_largest_matrix": largest,
        "queries_per_s": round(per_s),
        "query_p50_ms": round(took_ms[len(took_ms) // 2], 2),
        "query_p99_ms": round(took_ms[int(len(took_ms) * 0.99)], 2),
        "cells_per_query": round(cells / queries, 2),
        "exact": is_exact,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--names", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=20_000)
    parser.add_argument("--standing", type=int, default=100_000)
    parser.add_argument("--channels", type=int, default=0)
    given = parser.parse_args()
    found = asyncio.run(measure(given.names, given.queries)) if given.names else {}
    found |= asyncio.run(measure_memory(given.channels)) if given.channels else {}
    print(json.dumps(found | (measure_matching(given.standing) if given.standing else {}), indent=1))  # noqa: T201 - its output


if __name__ == "__main__":
    main()
