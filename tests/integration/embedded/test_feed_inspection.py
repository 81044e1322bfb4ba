"""``coronet inspect`` with the real address guard, fetcher and parser, on the sample publisher."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from service import settings
from service.embedded.sample_publisher import SamplePublisher
from service.errors import BadStatus, BrokenFeed, EmptyBody, TooLarge
from service.operations.feed_inspection import as_text, inspect, next_poll

OPEN = settings.load({}, allow_private=True, preset="trial")


@pytest_asyncio.fixture
async def publisher(tmp_path: Path) -> AsyncIterator[SamplePublisher]:
    async with SamplePublisher(tmp_path) as running:
        yield running


async def test_a_feed_is_shown_with_validators_entries_and_ids(publisher: SamplePublisher) -> None:
    entry = await publisher.publish("First")
    found = await inspect(publisher.feed_url(), OPEN)
    assert [(item.id, item.link, item.title) for item in found.entries] == [(entry.id, entry.link, "First")]
    assert (found.status, bool(found.validators.etag)) == (200, True)
    assert msgspec.json.decode(msgspec.json.encode(found))["type"] == "feed"
    for shown in (entry.id, entry.link, "First", found.validators.etag):
        assert shown in as_text(found)


async def test_a_page_is_shown_with_the_feeds_it_links_to(publisher: SamplePublisher) -> None:
    found = await inspect(publisher.url, OPEN)
    assert (found.kind, [feed.url for feed in found.feeds]) == ("page", [publisher.feed_url()])
    assert publisher.feed_url() in as_text(found)


async def test_a_page_without_feeds_is_shown_with_its_monitored_content(publisher: SamplePublisher) -> None:
    found = await inspect(f"{publisher.url}/bad/html", OPEN)
    assert (found.kind, found.feeds) == ("page", ())
    assert found.lines
    assert all(line in as_text(found) for line in found.lines[:20])


@pytest.mark.parametrize(
    ("path", "error"),
    [("404", BadStatus), ("broken.xml", BrokenFeed), ("empty", EmptyBody), ("huge", TooLarge)],
)
async def test_a_publishers_error_is_raised(publisher: SamplePublisher, path: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        await inspect(f"{publisher.url}/bad/{path}", OPEN)


async def test_a_publisher_cannot_control_the_terminal(publisher: SamplePublisher) -> None:
    found = await inspect(publisher.url, OPEN)
    hostile = msgspec.structs.replace(found, url="http://example.org/\x1b[2J\u202e")
    assert not {"\x1b", "\u202e"} & set(as_text(hostile))


def test_the_next_poll_respects_the_interval_rate_limits_and_retry_after() -> None:
    default = settings.load({})
    frequent = default.model_copy(update={"poll_interval_s": 30.0})
    assert next_poll(default, private=False, retry_after_s=None).in_s == 900.0
    assert next_poll(frequent, private=False, retry_after_s=None).in_s == 900.0
    assert next_poll(frequent, private=True, retry_after_s=None).in_s == 7.5
    assert next_poll(default, private=False, retry_after_s=7200.0).in_s == 7200.0
    assert "Retry-After" in next_poll(default, private=False, retry_after_s=7200.0).why
