"""The fast parser: same result as feedparser for typical documents, None for others."""

from collections.abc import Iterable

import pytest

from service.errors import FeedError
from service.feeds.parsing import fast_parser, feedparser_adapter
from service.feeds.parsing.charset import decode_document
from tests.support.feed_corpus import damaged, defects, encodings, wild
from tests.support.feed_dialects import DIALECTS, URL
from tests.support.feed_documents import atom, item, rss, typical_atom, typical_rss


def fast_result(text: str) -> object:
    """Return the result of the fast parser, or None."""
    return fast_parser.parse(text, url=URL, language="en")


def feedparser_result(text: str) -> object:
    try:
        return feedparser_adapter.parse(text, url=URL, language="en")
    except FeedError as error:
        return error


FEED_METADATA = (
    "<generator>WordPress</generator>",
    "<generator>https://wordpress.org/?v=6.4.2</generator>",
    '<generator uri="https://hexo.io/" version="7.1">Hexo</generator>',
    '<generator version="7.1">Hexo 7.1</generator><generator/>',
    "<generator>A &amp;amp; B</generator>",
    "<generator>caf\u00c3\u00a9</generator>",
    '<admin:generatorAgent rdf:resource="http://www.movabletype.org/?v=3.2"/>',
    '<admin:generatorAgent rdf:resource="http://a.example/"/><generator version="1">Other</generator>',
    '<generator version="1">Other</generator><admin:generatorAgent/>',
    '<category>Science</category><category domain="x">Science</category><category term="t" label="Label"/>',
    '<itunes:category text="Society"><itunes:category text="History"/></itunes:category>',
    '<itunes:category text="Society">odd<itunes:category text="History"/></itunes:category>',
    '<itunes:category text="Society"><itunes:category text="History">text</itunes:category></itunes:category>',
    '<itunes:category><itunes:category text="Inner"/></itunes:category><category>Last</category>',
    '<itunes:category text="Arts"/><itunes:keywords>one, two</itunes:keywords><dc:subject>Subject</dc:subject>',
)
SPACES = (
    'xmlns:admin="http://webns.net/mvcb/" xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
    'xmlns:itunes="http://www.itunes.com/dtds/podcast-1.0.dtd" xmlns:dc="http://purl.org/dc/elements/1.1/"'
)


@pytest.mark.parametrize("fields", FEED_METADATA)
@pytest.mark.parametrize(
    "form",
    [
        "<rss version='2.0' {spaces}><channel><title>T</title>{fields}<item><title>I</title></item></channel></rss>",
        "<rss version='2.0' {spaces}><channel><title>T</title><item><title>I</title>{fields}</item></channel></rss>",
        "<feed xmlns='http://www.w3.org/2005/Atom' {spaces}><title>T</title>{fields}<entry/></feed>",
    ],
)
def test_categories_and_generator_equal_those_of_feedparser(form: str, fields: str) -> None:
    text = form.format(spaces=SPACES, fields=fields)
    result = fast_result(text)
    assert result is None or result == feedparser_result(text)


@pytest.mark.parametrize(
    ("fields", "tags", "generator"),
    [
        (FEED_METADATA[2], (), "Hexo 7.1"),
        (FEED_METADATA[3], (), ""),
        (FEED_METADATA[1], (), "https://wordpress.org/?v=6.4.2"),
        (FEED_METADATA[10], ("Society", "History"), ""),
        (FEED_METADATA[14], ("Arts", "one", "two", "Subject"), ""),
    ],
)
def test_categories_and_generator_do_not_require_feedparser(fields: str, tags: tuple[str, ...], generator: str) -> None:
    text = f"<rss version='2.0' {SPACES}><channel><title>T</title>{fields}<item/></channel></rss>"
    result = fast_parser.parse(text, url=URL, language="en")
    assert result is not None
    assert (result.metadata.tags, result.metadata.generator) == (tags, generator)


def test_results_for_the_corpus_equal_those_of_feedparser() -> None:
    texts: Iterable[str] = {
        decode_document(sample.body, sample.content_type)
        for samples in (encodings, defects, damaged, wild)
        for sample in samples()
    }
    result = {text: feed for text in texts if (feed := fast_result(text)) is not None}
    assert len(result) > 100
    assert [text for text, feed in result.items() if feed != feedparser_result(text)] == []


@pytest.mark.parametrize("body", [rss([item("a")]), atom([item("a")]), typical_rss([1, 2]), typical_atom([1, 2])])
def test_typical_documents_do_not_require_feedparser(body: bytes) -> None:
    assert fast_result(body.decode()) is not None


@pytest.mark.parametrize(
    "name", ["rss 0.90", "rss 0.91", "rss 0.92", "rss 1.0", "rss 2.0", "rss 2.0 with Dublin Core", "atom 1.0"]
)
def test_common_dialects_do_not_require_feedparser(name: str) -> None:
    assert fast_result(DIALECTS[name].text) is not None


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE rss [<!ENTITY x "y">]><rss version="2.0"><channel><title>T&x;</title></channel></rss>',
        '<rss version="2.0"><channel><title>T&nbsp;</title></channel></rss>',
        '<rss version="2.0"><channel><title>T</title></channel>',
        '<rss version="2.0"><channel><title>T\ufffd</title></channel></rss>',
        "<rss version='2.0'><channel><title>T</title>" + "<b>" * 300 + "</b>" * 300 + "</channel></rss>",
        "<rss version='2.0'><channel><title>T</title>" + "<item></item>" * 1_001 + "</channel></rss>",
        "<rss version='2.0'><channel><title>T</title><gml_point>1 2</gml_point></channel></rss>",
        "<rss version='2.0'/>",
        "<opml><body/></opml>",
    ],
)
def test_unusual_documents_require_feedparser(text: str) -> None:
    assert fast_result(text) is None
