"""The fast path reads what most publishers send, leaves the rest, and knows all that feedparser knows."""

from collections.abc import Iterable

import feedparser
import pytest

from service.errors import FeedError
from service.feeds.parsing import fast_parser, feedparser_adapter
from service.feeds.parsing.charset import decode_document
from service.feeds.parsing.fast_parser_elements import FEED_HANDLERS
from service.feeds.parsing.fast_parser_values import ElementNames
from tests.support.feed_corpus import damaged, defects, encodings, wild
from tests.support.feed_dialects import DIALECTS, URL
from tests.support.feed_documents import atom, item, rss, typical_atom, typical_rss

HARDLY_USED = {"geom", "georssgeom", "textInput", "creativeCommons_license"}
"""Parts of names of feedparser's methods that no element's name can lead to, but for capitals, or hardly."""


def methods(*kinds: str) -> set[str]:
    """Return the names of the elements that feedparser has methods for."""
    known = dir(feedparser.mixin._FeedParserMixin)
    return {name.removeprefix(kind) for kind in kinds for name in known if name.startswith(kind)}


def read(text: str) -> object:
    """Return what the fast path says, or None."""
    return fast_parser.parse(text, url=URL, language="en")


def judged(text: str) -> object:
    try:
        return feedparser_adapter.parse(text, url=URL, language="en")
    except FeedError as error:
        return error


SAYS_OF_ITSELF = (
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


@pytest.mark.parametrize("fields", SAYS_OF_ITSELF)
@pytest.mark.parametrize(
    "form",
    [
        "<rss version='2.0' {spaces}><channel><title>T</title>{fields}<item><title>I</title></item></channel></rss>",
        "<rss version='2.0' {spaces}><channel><title>T</title><item><title>I</title>{fields}</item></channel></rss>",
        "<feed xmlns='http://www.w3.org/2005/Atom' {spaces}><title>T</title>{fields}<entry/></feed>",
    ],
)
def test_both_read_the_same_categories_and_software(form: str, fields: str) -> None:
    text = form.format(spaces=SPACES, fields=fields)
    said = read(text)
    assert said is None or said == judged(text)


@pytest.mark.parametrize(
    ("fields", "tags", "generator"),
    [
        (SAYS_OF_ITSELF[2], (), "Hexo 7.1"),
        (SAYS_OF_ITSELF[3], (), ""),
        (SAYS_OF_ITSELF[1], (), "https://wordpress.org/?v=6.4.2"),
        (SAYS_OF_ITSELF[10], ("Society", "History"), ""),
        (SAYS_OF_ITSELF[14], ("Arts", "one", "two", "Subject"), ""),
    ],
)
def test_what_a_feed_says_of_itself_is_not_left_to_feedparser(
    fields: str, tags: tuple[str, ...], generator: str
) -> None:
    text = f"<rss version='2.0' {SPACES}><channel><title>T</title>{fields}<item/></channel></rss>"
    said = fast_parser.parse(text, url=URL, language="en")
    assert said is not None
    assert (said.metadata.tags, said.metadata.generator) == (tags, generator)


def test_on_the_whole_corpus_it_says_what_feedparser_says_or_nothing() -> None:
    texts: Iterable[str] = {
        decode_document(sample.body, sample.content_type)
        for samples in (encodings, defects, damaged, wild)
        for sample in samples()
    }
    said = {text: feed for text in texts if (feed := read(text)) is not None}
    assert len(said) > 100
    assert [text for text, feed in said.items() if feed != judged(text)] == []


@pytest.mark.parametrize("body", [rss([item("a")]), atom([item("a")]), typical_rss([1, 2]), typical_atom([1, 2])])
def test_what_most_publishers_send_is_not_left_to_feedparser(body: bytes) -> None:
    assert read(body.decode()) is not None


@pytest.mark.parametrize(
    "name", ["rss 0.90", "rss 0.91", "rss 0.92", "rss 1.0", "rss 2.0", "rss 2.0 with Dublin Core", "atom 1.0"]
)
def test_these_dialects_are_not_left_to_feedparser(name: str) -> None:
    assert read(DIALECTS[name].text) is not None


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
def test_what_is_hard_is_left_to_feedparser(text: str) -> None:
    assert read(text) is None


def test_every_element_that_feedparser_has_methods_for_is_known() -> None:
    assert methods("_start_", "_end_") - HARDLY_USED - set(FEED_HANDLERS) == set()


def test_every_namespace_in_which_feedparser_has_methods_is_known() -> None:
    with_methods = {name.partition("_")[0] for name in methods("_start_", "_end_") if "_" in name}
    for uri, prefix in feedparser.mixin._FeedParserMixin.namespaces.items():
        if uri and (not prefix or prefix.lower() in with_methods):
            assert ElementNames("")[f"{{{uri}}}thing"] == f"{prefix.lower()}_thing".removeprefix("_")
