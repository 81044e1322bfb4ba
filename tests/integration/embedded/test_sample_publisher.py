"""The sample publisher over HTTP."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import feedparser
import pytest
import pytest_asyncio

from service.embedded import sample_publisher
from service.embedded.sample_publisher import (
    FEED_LENGTH,
    HUGE_BYTES,
    Journal,
    PublishedEntry,
    SamplePublisher,
    is_unchanged_since,
)
from service.errors import OperationalError
from tests.support.waiting import until_so


@pytest_asyncio.fixture
async def publisher(tmp_path: Path) -> AsyncIterator[SamplePublisher]:
    async with SamplePublisher(tmp_path / "publisher") as running:
        yield running


@pytest_asyncio.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def titles(http: aiohttp.ClientSession, url: str) -> list[str]:
    async with http.get(url) as response:
        return [entry.title for entry in feedparser.parse(await response.read()).entries]


async def status(http: aiohttp.ClientSession, url: str, **headers: str) -> int:
    async with http.get(url, headers={name.replace("_", "-"): value for name, value in headers.items()}) as response:
        return response.status


async def test_a_feed_shows_the_newest_entry_first(publisher: SamplePublisher, http: aiohttp.ClientSession) -> None:
    await publisher.publish("first & <foremost>")
    await publisher.publish("second")
    assert await titles(http, publisher.feed_url()) == ["second", "first & <foremost>"]


async def test_a_feed_omits_old_entries(publisher: SamplePublisher, http: aiohttp.ClientSession) -> None:
    for number in range(FEED_LENGTH + 1):
        await publisher.publish(str(number))
    shown = await titles(http, publisher.feed_url())
    assert (len(shown), shown[-1]) == (FEED_LENGTH, "1")


async def test_feeds_are_independent(publisher: SamplePublisher, http: aiohttp.ClientSession) -> None:
    await publisher.publish("here", feed=7)
    assert await titles(http, publisher.feed_url(7)) == ["here"]
    assert await titles(http, publisher.feed_url(8)) == []


async def test_a_request_with_the_current_etag_gets_304(
    publisher: SamplePublisher, http: aiohttp.ClientSession
) -> None:
    await publisher.publish("first")
    async with http.get(publisher.feed_url()) as response:
        etag = response.headers["ETag"]
    assert await status(http, publisher.feed_url(), If_None_Match=etag) == 304
    await publisher.publish("second")
    assert await status(http, publisher.feed_url(), If_None_Match=etag) == 200


async def test_if_none_match_takes_precedence_over_if_modified_since(
    publisher: SamplePublisher, http: aiohttp.ClientSession
) -> None:
    await publisher.publish("first")
    async with http.get(publisher.feed_url()) as response:
        date = response.headers["Last-Modified"]
    assert await status(http, publisher.feed_url(), If_Modified_Since=date) == 304
    assert await status(http, publisher.feed_url(), If_Modified_Since=date, If_None_Match='"other"') == 200


@pytest.mark.parametrize(
    ("published_s", "since_s", "unchanged"),
    [
        ([10.2], 10, True),
        ([10.2], 11, True),
        ([10.2], 9, False),
        ([10.2, 10.8], 10, False),
        ([9.0, 10.2], 10, True),
        ([10.2, 11.0], 10, False),
    ],
)
def test_last_modified_is_compared_in_whole_seconds(published_s: list[float], since_s: int, *, unchanged: bool) -> None:
    entries = [PublishedEntry(feed=0, id="", link="", title="", published_s=at_s) for at_s in published_s]
    assert is_unchanged_since(entries, since_s) is unchanged


async def test_a_restart_continues_the_feed(tmp_path: Path) -> None:
    async with SamplePublisher(tmp_path) as first:
        kept = await first.publish("kept")
    with (tmp_path / "published.jsonl").open("ab") as file:
        file.write(b'{"feed":0,"id":"cut sho')
    async with SamplePublisher(tmp_path) as second:
        added = await second.publish("added")
        assert second.published() == [kept, added]
        assert kept.id != added.id
    assert Journal(tmp_path / "published.jsonl", PublishedEntry).lines() == [kept, added]


async def test_every_request_is_in_the_journal(publisher: SamplePublisher, http: aiohttp.ClientSession) -> None:
    await publisher.publish("first")
    await status(http, publisher.feed_url(), User_Agent="reader/1")
    await status(http, publisher.feed_url(), User_Agent="reader/2", If_None_Match="*")
    await status(http, f"{publisher.url}/bad/404", User_Agent="reader/1")
    assert [
        (request.path, request.status, request.user_agent, request.conditional) for request in publisher.requests()
    ] == [
        ("/feed.xml", 200, "reader/1", False),
        ("/feed.xml", 304, "reader/2", True),
        ("/bad/404", 404, "reader/1", False),
    ]


async def test_entries_can_be_published_over_http(publisher: SamplePublisher, http: aiohttp.ClientSession) -> None:
    async with http.post(f"{publisher.url}/publish", params={"feed": "3", "title": "from outside"}) as response:
        entry = await response.json()
    assert [(each.id, each.title) for each in publisher.published(3)] == [(entry["id"], "from outside")]
    async with http.post(f"{publisher.url}/publish", params={"feed": "x"}) as response:
        assert response.status == 400


async def test_the_home_page_links_to_the_feed(publisher: SamplePublisher, http: aiohttp.ClientSession) -> None:
    async with http.get(publisher.url) as response:
        assert 'rel="alternate" type="application/rss+xml"' in await response.text()


async def test_bad_paths_fail_as_documented(publisher: SamplePublisher, http: aiohttp.ClientSession) -> None:
    sizes = {}
    for path in ("html", "broken.xml", "empty", "huge"):
        async with http.get(f"{publisher.url}/bad/{path}") as response:
            sizes[path] = (response.status, len(await response.read()))
    assert sizes["empty"] == (200, 0)
    assert sizes["huge"][1] > HUGE_BYTES
    assert await titles(http, f"{publisher.url}/bad/html") == []
    assert await status(http, f"{publisher.url}/bad/404") == 404
    async with http.get(f"{publisher.url}/bad/slow") as response:
        assert await response.content.read(2) in {b" ", b"  "}


async def test_a_port_in_use_is_reported(publisher: SamplePublisher, tmp_path: Path) -> None:
    other = SamplePublisher(tmp_path / "other", int(publisher.url.rpartition(":")[2]))
    with pytest.raises(OperationalError, match="cannot listen"):
        async with other:
            pass


async def test_the_program_publishes_at_the_interval_until_sigterm(tmp_path: Path) -> None:
    running = asyncio.create_task(sample_publisher.run(tmp_path, port=0, interval_s=0.05))
    journal = Journal(tmp_path / "published.jsonl", PublishedEntry)
    await until_so(lambda: len(journal.lines()) >= 3, "three entries")
    os.kill(os.getpid(), signal.SIGTERM)
    await running
    gaps_s = [b.published_s - a.published_s for a, b in zip(journal.lines(), journal.lines()[1:], strict=False)]
    assert min(gaps_s) >= 0.05
    assert journal.lines()[-1].published_s <= time.time()
