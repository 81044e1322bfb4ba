"""The fast path reads what most publishers send, leaves the rest, and knows all that feedparser knows."""

from collections.abc import Iterable

import feedparser
import pytest

from service.errors import FeedError
from service.feeds import strict, tolerant
from service.feeds.charset import text_of
from service.feeds.strict_fields import FEED
from service.feeds.strict_names import Names
from tests.support.corpus import damaged, defects, encodings, wild
from tests.support.dialects import DIALECTS, URL
from tests.support.documents import atom, item, rss, typical_atom, typical_rss

HARDLY_USED = {"geom", "georssgeom", "textInput", "creativeCommons_license"}
"""Parts of names of feedparser's methods that no element's name can lead to, but for capitals, or hardly."""


def methods(*kinds: str) -> set[str]:
    """Return the names of the elements that feedparser has methods for."""
    known = dir(feedparser.mixin._FeedParserMixin)
    return {name.removeprefix(kind) for kind in kinds for name in known if name.startswith(kind)}


def read(text: str) -> object:
    """Return what the fast path says, or None."""
    return strict.parse(text, url=URL, language="en")


def judged(text: str) -> object:
    try:
        return tolerant.parse(text, url=URL, language="en")
    except FeedError as error:
        return error


def test_on_the_whole_corpus_it_says_what_feedparser_says_or_nothing() -> None:
    texts: Iterable[str] = {
        text_of(sample.body, sample.content_type)
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
    assert methods("_start_", "_end_") - HARDLY_USED - set(FEED) == set()


def test_every_namespace_in_which_feedparser_has_methods_is_known() -> None:
    with_methods = {name.partition("_")[0] for name in methods("_start_", "_end_") if "_" in name}
    for uri, prefix in feedparser.mixin._FeedParserMixin.namespaces.items():
        if uri and (not prefix or prefix.lower() in with_methods):
            assert Names("")[f"{{{uri}}}thing"] == f"{prefix.lower()}_thing".removeprefix("_")
