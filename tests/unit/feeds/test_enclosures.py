"""Attached files and images of entries in every dialect: which are read, and their limits."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.feeds.parsing import feedparser_adapter
from service.feeds.parsing.enclosures import FILE_URL_CHARS, MAX_ENCLOSURES, read_files
from service.feeds.parsing.format_detection import parse
from service.model import Enclosure, ParsedEntry

URL = "https://example.com/feed"
SPACES = (
    'xmlns:itunes="http://www.itunes.com/dtds/podcast-1.0.dtd" xmlns:media="http://search.yahoo.com/mrss/"'
    ' xmlns:atom="http://www.w3.org/2005/Atom"'
)
EPISODE = Enclosure("https://example.com/1.mp3", "audio/mpeg", 34_215_000, 2_530)
VIDEO = Enclosure("https://example.com/1.mp4", "video/mp4", 5_000_000, 61)


def rss(inner: str) -> str:
    return f'<rss version="2.0" {SPACES}><channel><title>T</title><item><title>A</title>{inner}</item></channel></rss>'


def atom(inner: str) -> str:
    return f'<feed xmlns="http://www.w3.org/2005/Atom" {SPACES}><title>T</title><entry><id>1</id>{inner}</entry></feed>'


def read(document: str) -> ParsedEntry:
    """The only entry of a document; feedparser reads the same from XML."""
    (entry,) = parse(document.encode(), url=URL, headers={}).entries
    if document.startswith("<"):
        assert feedparser_adapter.parse(document, url=URL, language="").entries == (entry,)
    return entry


@pytest.mark.parametrize(
    ("document", "enclosures", "image"),
    [
        (
            rss(
                '<enclosure url="/1.mp3" length="34215000" type="audio/mpeg"/><itunes:duration>42:10</itunes:duration>'
                '<itunes:image href="cover.jpg"/>'
            ),
            (EPISODE,),
            "https://example.com/cover.jpg",
        ),
        (rss('<enclosure url="/a.jpg" length="9" type="image/jpeg"/>'), (), "https://example.com/a.jpg"),
        (
            rss(
                '<media:group><media:content url="/1.mp4" fileSize="5000000" type="video/mp4" duration="61.5"/>'
                '<media:content url="/s.jpg" medium="image" width="90"/>'
                '<media:content url="/l.jpg" medium="image" width="800"/></media:group><media:thumbnail url="/t.jpg"/>'
            ),
            (VIDEO,),
            "https://example.com/l.jpg",
        ),
        (rss('<media:thumbnail url="/t.jpg"/><media:thumbnail url="/u.jpg"/>'), (), "https://example.com/t.jpg"),
        (rss("<media:thumbnail>/t.jpg</media:thumbnail>"), (), "https://example.com/t.jpg"),
        (
            atom('<link rel="enclosure" href="/1.mp3" type="Audio/MPEG" length="34215000" title="One"/>'),
            (Enclosure("https://example.com/1.mp3", "audio/mpeg", 34_215_000, 0, "One"),),
            "",
        ),
        (atom('<link rel="enclosure" href="/file"/>'), (Enclosure("https://example.com/file"),), ""),
        (
            json.dumps({
                "version": "https://jsonfeed.org/version/1.1",
                "items": [{
                    "id": 1, "banner_image": "/banner.png",
                    "attachments": [{
                        "url": "/1.mp4", "mime_type": "video/mp4", "size_in_bytes": 5_000_000,
                        "duration_in_seconds": 61.5,
                    }, {"url": 7}, "x", {"url": "/1.mp4"}],
                }],
            }),
            (VIDEO,),
            "https://example.com/banner.png",
        ),
    ],
)  # fmt: skip
def test_files_of_every_dialect_are_read(document: str, enclosures: tuple[Enclosure, ...], image: str) -> None:
    entry = read(document)
    assert (entry.enclosures, entry.image) == (enclosures, image)


@pytest.mark.parametrize("url", ["javascript:alert(1)", "ftp://example.com/a", "data:audio/mpeg,x", "", "x" * 1_001])
def test_other_and_long_urls_are_ignored(url: str) -> None:
    entry = read(rss(f'<enclosure url="{url}" type="audio/mpeg"/><media:thumbnail url="{url}"/>'))
    assert (entry.enclosures, entry.image) == ((), "")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("61", 61), ("1:01", 61), ("01:00:01", 3_601), ("61.9", 61), ("-1", 0), ("1e3", 0), ("9" * 9, 0), ("٣", 0)],
)
def test_durations_are_seconds_or_clock_times(text: str, seconds: int) -> None:
    (enclosure,) = read(
        rss(f'<enclosure url="/a" type="audio/ogg"/><itunes:duration>{text}</itunes:duration>')
    ).enclosures
    assert enclosure.duration_s == seconds


def test_an_entry_has_at_most_four_enclosures() -> None:
    entry = read(rss("".join(f'<enclosure url="/{number}" type="audio/mpeg"/>' for number in range(900))))
    assert [each.url for each in entry.enclosures] == [f"https://example.com/{number}" for number in range(4)]


VALUES = st.one_of(
    st.text(max_size=60), st.integers(), st.floats(), st.none(), st.booleans(), st.lists(st.text(), max_size=2),
    st.sampled_from(("audio/mpeg", "image/png", "https://example.com/a", "//x", "http://[", "1:02:03", "9" * 400)),
)  # fmt: skip
NAMES = st.sampled_from((
    "href", "url", "type", "mime_type", "medium", "length", "filesize", "size_in_bytes", "duration",
    "duration_in_seconds", "title", "width",
))  # fmt: skip


@given(st.lists(st.dictionaries(NAMES, VALUES, max_size=9), max_size=30), st.lists(VALUES, max_size=30), VALUES)
def test_values_of_any_kind_are_bounded(files: list[dict[str, object]], images: list[object], duration: object) -> None:
    enclosures, image = read_files(files, images, URL, duration=duration)
    assert len(enclosures) <= MAX_ENCLOSURES
    for url in (*(each.url for each in enclosures), *filter(None, [image])):
        assert url.lower().startswith(("http://", "https://"))
        assert len(url) <= FILE_URL_CHARS
    for each in enclosures:
        assert each.kind != "image"
        assert 0 <= each.size_bytes <= 10**11
        assert 0 <= each.duration_s <= 10**6
        assert max(len(each.type), len(each.title)) <= 100
