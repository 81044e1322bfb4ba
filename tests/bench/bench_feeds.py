"""CPU cost of a polled feed in the parser process: changed and unchanged documents per second of CPU time.

Run it alone on the machine: ``python -m tests.bench.bench_feeds``. Prints JSON for an RSS and an Atom feed of 33 KB
with HTML entries, of which one is new in each poll: ``changed`` documents per second through hashing, parsing,
identification and change detection; ``first`` polls of channels, which read every entry; documents parsed by feedparser
alone (``feedparser``) and by Coronet (``parse``); and ``unchanged`` polls per second, which only compare hashes.
"""

import gc
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from itertools import count, cycle

import feedparser

from service.feeds.parsing.format_detection import parse
from service.feeds.sandbox.parser_handlers import detect_changes
from service.feeds.sandbox.protocol import DetectChanges, Document
from tests.support.feed_documents import typical_atom, typical_rss

URL = "https://blog.example.com/feed"
HEADERS = {"Content-Type": "application/xml; charset=utf-8"}
DOCUMENTS = 24
BODY_BYTES = 33 * 1024
ROUNDS = 5
NOW_S = 1_800_000_000.0


def per_s(work: Callable[[], int]) -> float:
    """Return the operations per second of CPU time in the best of several rounds."""
    rates = []
    for _ in range(ROUNDS):
        began_s = time.process_time()
        done = work()
        rates.append(done / (time.process_time() - began_s))
    return max(rates)


def state_after(body: bytes, memory: bytes) -> bytes:
    """Return the state after parsing a body."""
    return detect_changes(DetectChanges((Document(body, URL, HEADERS),), memory, URL, "feed", NOW_S)).baseline


def poll_changed(bodies: Sequence[bytes], memory: bytes) -> int:
    """Poll a known channel that changes every time."""
    seen = ""
    for body in bodies:
        found = hashlib.sha256(body).hexdigest()
        if found != seen:
            seen, memory = found, state_after(body, memory)
    return len(bodies)


def poll_first(bodies: Sequence[bytes]) -> int:
    """Poll channels for the first time."""
    for body in bodies:
        state_after(body, b"")
    return len(bodies)


def poll_unchanged(bodies: Sequence[bytes]) -> int:
    """Poll channels that never change."""
    known = [(body, hashlib.sha256(body).hexdigest()) for body in bodies]
    polls = 2_000
    same = sum(hashlib.sha256(body).hexdigest() == seen for (body, seen), _ in zip(cycle(known), range(polls)))
    assert same == polls
    return polls


def parse_each(bodies: Sequence[bytes]) -> int:
    """Parse each body."""
    for body in bodies:
        assert parse(body, url=URL, headers=HEADERS).entries
    return len(bodies)


def parse_by_feedparser(bodies: Sequence[bytes]) -> int:
    """Parse each body with feedparser's default options."""
    for body in bodies:
        loaded = feedparser.parse(
            body, response_headers={"content-type": "text/xml"}, sanitize_html=False, resolve_relative_uris=False
        )
        assert loaded.entries
    return len(bodies)


def measure(build: Callable[..., bytes]) -> dict[str, float]:
    """Return the figures for one dialect."""
    size = next(entries for entries in count(1) if len(build(range(100 - entries, 100))) >= BODY_BYTES)
    bodies = [build(range(newest - size, newest)) for newest in range(100, 100 + DOCUMENTS)]
    known = state_after(bodies[0], b"")
    gc.freeze()  # as the child does that reads feeds
    ours, theirs = per_s(lambda: parse_each(bodies)), per_s(lambda: parse_by_feedparser(bodies))
    return {
        "body_kb": round(len(bodies[0]) / 1024, 1),
        "changed_per_s": round(per_s(lambda: poll_changed(bodies[1:], known))),
        "first_per_s": round(per_s(lambda: poll_first(bodies))),
        "unchanged_per_s": round(per_s(lambda: poll_unchanged(bodies))),
        "parse_per_s": round(ours),
        "feedparser_per_s": round(theirs),
        "parse_to_feedparser": round(ours / theirs, 1),
    }


if __name__ == "__main__":
    print(json.dumps({build.__name__: measure(build) for build in (typical_rss, typical_atom)}, indent=1))  # noqa: T201 - the result
