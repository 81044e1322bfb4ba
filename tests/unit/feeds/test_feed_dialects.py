"""Documents as publishers send them: every dialect is parsed, and a defect raises nothing but a FeedError."""

import re
import time
from collections.abc import Callable, Iterable

import msgspec
import pytest

from service.errors import FeedError
from service.feeds.parsing.format_detection import parse
from service.feeds.sandbox.parser_handlers import parse_document
from service.feeds.sandbox.protocol import Document, ParseDocument
from service.feeds.sandbox.resource_limits import CPU_S
from tests.support.feed_corpus import Sample, damaged, defects, encodings, wild
from tests.support.feed_dialects import DIALECTS, URL, Stated
from tests.support.hostile_documents import hostile

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def headers(sample: Sample) -> dict[str, str]:
    return {"Content-Type": sample.content_type} if sample.content_type else {}


def strings(value: object) -> list[str]:
    """Return all strings in a value, at any depth."""
    if isinstance(value, dict):
        return strings(list(value.values()))
    if isinstance(value, list | tuple):
        return [text for each in value for text in strings(each)]
    return [value] if isinstance(value, str) else []


def fault(sample: Sample) -> str:
    """Return the faults in the result for the sample; exceptions other than a FeedError are raised."""
    try:
        feed = parse_document(ParseDocument(Document(sample.body, URL, headers(sample)))).feed
    except FeedError as error:
        return repr(error) if sample.titles is not None else ""
    titles = tuple(entry.title for entry in feed.entries) if feed else ()
    if sample.titles not in (None, titles):
        return f"the titles are {titles}"
    return next((f"{text!r} is no XML" for text in strings(msgspec.to_builtins(feed)) if _NOT_XML.search(text)), "")


@pytest.mark.parametrize("name", DIALECTS)
def test_every_dialect_is_parsed(name: str) -> None:
    feed = parse(DIALECTS[name].text.encode(), url=URL, headers={})
    stated = [
        Stated(entry.id, entry.link, entry.title, entry.published if entry.published is not None else entry.updated)
        for entry in feed.entries
    ]
    assert feed.title == "A blog"
    assert stated == list(DIALECTS[name].entries)


@pytest.mark.parametrize(
    ("samples", "limit_cpu_s"), [(encodings, 1.0), (defects, 1.0), (damaged, 1.0), (wild, 1.0), (hostile, CPU_S)]
)
def test_defective_documents_keep_their_titles_or_raise_a_feed_error(
    samples: Callable[[], Iterable[Sample]], limit_cpu_s: float
) -> None:
    faults, slow = {}, {}
    for sample in samples():
        began_s = time.process_time()
        faults[sample.name] = fault(sample)
        slow[sample.name] = time.process_time() - began_s
    assert {name: what for name, what in faults.items() if what} == {}
    assert {name: cpu_s for name, cpu_s in slow.items() if cpu_s > limit_cpu_s} == {}


@pytest.mark.parametrize(
    ("guids", "ids"),
    [
        (("", ""), ["", ""]),
        (("<guid/>", "<guid> </guid>"), ["", ""]),
        (("<guid>1</guid>", "<guid>1</guid>"), ["https://example.com/blog/1"] * 2),
        (("<guid isPermaLink='false'>1</guid><guid isPermaLink='false'>2</guid>", ""), ["2", ""]),
        (("<guid isPermaLink='false'> a\n b </guid>", "<guid isPermaLink='false'>&lt;b&gt;</guid>"), ["a\n b", "<b>"]),
    ],
)
def test_guids_are_kept_unchanged(guids: tuple[str, str], ids: list[str]) -> None:
    items = "".join(f"<item><title>x</title>{guid}</item>" for guid in guids)
    body = f'<rss version="2.0"><channel><title>T</title>{items}</channel></rss>'.encode()
    assert [entry.id for entry in parse(body, url=URL, headers={}).entries] == ids


@pytest.mark.parametrize(
    ("base", "link", "absolute"),
    [
        ("", "a", "https://example.com/blog/a"),
        ("", "//example.org/a", "https://example.org/a"),
        ("", "?page=2", "https://example.com/blog/feed?page=2"),
        ('xml:base="https://example.org/x/"', "a", "https://example.org/x/a"),
        ('xml:base="/y/"', "a", "https://example.com/y/a"),
        ('xml:base="javascript:alert(1)"', "https://example.org/a", "https://example.org/a"),
    ],
)
def test_links_are_resolved_against_xml_base_or_the_document(base: str, link: str, absolute: str) -> None:
    text = (
        f'<feed xmlns="http://www.w3.org/2005/Atom" {base}><title>T</title><entry><link href="{link}"/></entry></feed>'
    )
    assert [entry.link for entry in parse(text.encode(), url=URL, headers={}).entries] == [absolute]
