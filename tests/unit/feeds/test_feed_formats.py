"""Feed documents of every format have the same values; other documents raise the right error."""

from collections.abc import Callable
from pathlib import Path

import pytest

from service.errors import BrokenFeed, EmptyBody, FeedError, ListOfFeeds, NotAFeed
from service.feeds.parsing import fast_parser
from service.feeds.parsing.format_detection import parse
from service.model import ParsedFeed, PollingHints
from tests.support.feed_documents import atom, item, json_feed, page, rss

URL = "https://example.com/feed"
GIVES_UP = {"gml_pos", "gml_poslist"}
"""Elements that make feedparser fail outside of a point element, so that BrokenFeed is raised."""
ENTRY = item("a", authors=("Ann",), tags=("tech", "news"))


def read(body: bytes, **headers: str) -> ParsedFeed:
    return parse(body, url=URL, headers=headers)


def channel(inner: str) -> bytes:
    return f'<rss version="2.0"><channel><title>T</title>{inner}</channel></rss>'.encode()


@pytest.mark.parametrize("document", [rss([ENTRY]), atom([ENTRY])])
def test_xml_feeds_are_parsed(document: bytes) -> None:
    feed = read(document)
    assert feed.title == "Example"
    assert feed.link == "https://example.com/"
    assert feed.entries == (ENTRY,)


@pytest.mark.parametrize("document", [b"<?xml version='1.0'?><opml version='2.0'/>", b"<!-- mine --><OPML><body/>"])
def test_an_opml_file_raises_list_of_feeds(document: bytes) -> None:
    with pytest.raises(ListOfFeeds, match="import it"):
        read(document)


def test_a_json_feed_is_parsed() -> None:
    (entry,) = read(json_feed([ENTRY])).entries
    assert (entry.id, entry.link, entry.title, entry.published) == (ENTRY.id, ENTRY.link, ENTRY.title, ENTRY.published)
    assert (entry.content, entry.authors, entry.tags) == (ENTRY.summary, ENTRY.authors, ENTRY.tags)


def test_an_rdf_feed_is_parsed() -> None:
    feed = read(
        b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/">'
        b'<channel rdf:about="x"><title>T</title></channel>'
        b'<item rdf:about="https://example.com/1"><title>One</title><link>https://example.com/1</link></item></rdf:RDF>'
    )
    assert [entry.title for entry in feed.entries] == ["One"]


def test_numeric_json_feed_ids_become_text() -> None:
    feed = read(
        b'{"version": "https://jsonfeed.org/version/1", "items": [{"id": 7, "title": 3, "url": ["x"], "tags": "t"}, 5]}'
    )
    assert [(entry.id, entry.title, entry.link, entry.tags) for entry in feed.entries] == [("7", "3", "", ())]


def test_relative_links_are_resolved() -> None:
    feed = read(channel("<link>/home</link><item><link>../a</link><enclosure url='b.mp3'/></item>"))
    assert feed.link == "https://example.com/home"
    assert (feed.entries[0].link, feed.entries[0].enclosure) == ("https://example.com/a", "https://example.com/b.mp3")


def test_a_title_is_plain_text_on_one_line() -> None:
    feed = read(channel("<item><title>&lt;b&gt;Tom&lt;/b&gt; &amp;amp;\n Jerry</title></item>"))
    assert feed.entries[0].title == "Tom & Jerry"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("content_type", ["", "text/xml", "application/rss+xml; charset=iso-8859-1"])
def test_valid_unicode_takes_precedence_over_the_header(encoding: str, content_type: str) -> None:
    body = '<?xml version="1.0"?><rss version="2.0"><channel><title>Zoë €</title></channel></rss>'.encode(encoding)
    assert parse(body, url=URL, headers={"Content-Type": content_type}).title == "Zoë €"


@pytest.mark.parametrize("headers", [{}, {"Content-Type": "text/xml"}, {"content-type": "application/octet-stream"}])
def test_utf_8_needs_no_declaration(headers: dict[str, str]) -> None:
    assert (
        parse("<rss><channel><title>Zoë €</title></channel></rss>".encode(), url=URL, headers=headers).title == "Zoë €"
    )


def test_a_declared_encoding_is_used() -> None:
    body = (
        '<?xml version="1.0" encoding="windows-1251"?><rss version="2.0"><channel><title>Привет</title></channel></rss>'
    )
    assert read(body.encode("windows-1251")).title == "Привет"


@pytest.mark.parametrize(
    "date", ["", "yesterday", "Mon, 01 Jan 0000 00:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT", "0001-01-01T00:00:00Z"]
)
def test_impossible_dates_are_absent(date: str) -> None:
    assert read(channel(f"<item><title>x</title><pubDate>{date}</pubDate></item>")).entries[0].published is None


@pytest.mark.parametrize(
    ("ttl", "seconds"), [("15", 900.0), ("0", None), ("-5", None), ("99999999999", None), ("x", None)]
)
def test_only_a_valid_ttl_is_returned(ttl: str, seconds: float | None) -> None:
    assert read(channel(f"<ttl>{ttl}</ttl>")).polling_hints.ttl_s == seconds


@pytest.mark.parametrize(
    ("inner", "update_period_s"),
    [
        ("<sy:updatePeriod>hourly</sy:updatePeriod><sy:updateFrequency>2</sy:updateFrequency>", 1800.0),
        ("<sy:updatePeriod> Daily </sy:updatePeriod>", 86_400.0),
        ("<sy:updatePeriod>weekly</sy:updatePeriod><sy:updateFrequency>0</sy:updateFrequency>", None),
        ("<sy:updatePeriod>hourly</sy:updatePeriod><sy:updateFrequency>-1</sy:updateFrequency>", None),
        ("<sy:updatePeriod>hourly</sy:updatePeriod><sy:updateFrequency>9e9</sy:updateFrequency>", None),
        ("<sy:updatePeriod>never</sy:updatePeriod>", None),
        ("<sy:updateFrequency>2</sy:updateFrequency>", None),
    ],
)
def test_an_update_period_is_divided_by_its_frequency(inner: str, update_period_s: float | None) -> None:
    body = channel(inner).replace(b"<rss", b'<rss xmlns:sy="http://purl.org/rss/1.0/modules/syndication/"')
    assert read(body).polling_hints.update_period_s == update_period_s


def test_all_hours_and_days_to_skip_are_returned() -> None:
    hours = "".join(f"<hour>{hour}</hour>" for hour in ("3", "24", " 4\n", "25", "-1", "x", "3"))
    days = "<day>Sunday</day>\n<day>monday</day><day>Someday</day>"
    hints = read(channel(f"<skipHours>{hours}</skipHours><skipDays>{days}</skipDays>")).polling_hints
    assert (hints.skip_hours, hints.skip_days) == ((0, 3, 4), (0, 6))


def test_text_in_an_entry_is_no_polling_hint() -> None:
    assert (
        read(channel("<item><title><![CDATA[<skipHours><hour>1</hour></skipHours>]]></title></item>")).polling_hints
        == PollingHints()
    )


@pytest.mark.parametrize(
    "body",
    [
        channel("{}").replace(b"<rss", b'<rss xmlns:atom="http://www.w3.org/2005/Atom"'),
        b'<feed xmlns="http://www.w3.org/2005/Atom"><title>T</title>{}</feed>',
    ],
)
@pytest.mark.parametrize("flaw", ["", "&nbsp;"])
def test_hubs_topic_and_older_entries_are_found(body: bytes, flaw: str) -> None:
    prefix = "atom:" if b"xmlns:atom" in body else ""
    links = [("hub", "https://hub.example.com/"), ("hub", "/hub"), ("self", "/feed.xml"), ("next", "?page=2")]
    inner = "".join(f'<{prefix}link rel="{rel}" href="{href}"/>' for rel, href in links)
    feed = read(body.replace(b"{}", f"{inner}<generator>{flaw}</generator>".encode()))
    assert feed.hubs == ("https://hub.example.com/", "https://example.com/hub")
    assert feed.topic == "https://example.com/feed.xml"
    assert feed.older_url == "https://example.com/feed?page=2"
    inner += f'<{prefix}link rel="Prev-Archive" href="/2023"/>'
    assert read(body.replace(b"{}", inner.encode())).older_url == "https://example.com/2023"


def test_hubs_topic_and_older_entries_of_a_json_feed_are_found() -> None:
    hubs = '[{"type": "WebSub", "url": "/hub"}, {"type": "rssCloud", "url": "/cloud"}, 7, {"type": 1}]'
    feed = read(
        f'{{"version": "https://jsonfeed.org/version/1.1", "title": "T", "items": [], "feed_url": "/feed.json",'
        f'"next_url": "?page=2", "hubs": {hubs}}}'.encode()
    )
    assert (feed.hubs, feed.topic) == (("https://example.com/hub",), "https://example.com/feed.json")
    assert feed.older_url == "https://example.com/feed?page=2"


def test_the_newest_entries_are_returned_in_document_order() -> None:
    entries = [item(str(number), number=number) for number in range(600)]
    feed = read(rss(entries))
    assert [entry.title for entry in feed.entries] == [entry.title for entry in entries[100:]]


@pytest.mark.parametrize("build", [rss, atom])
def test_the_newest_entries_at_either_end_of_a_long_document_are_returned(build: Callable[..., bytes]) -> None:
    entries = [item(str(number), number=number) for number in range(3000)]
    assert [entry.title for entry in read(build(entries)).entries] == [entry.title for entry in entries[2500:]]
    entries.reverse()
    assert [entry.title for entry in read(build(entries)).entries] == [entry.title for entry in entries[:500]]


def test_long_fields_are_truncated() -> None:
    feed = read(rss([item("a", title="x" * 300_000, summary="y" * 300_000)]))
    assert len(feed.entries[0].title) == 1000
    assert len(feed.entries[0].summary) == 50_000


def test_surrogates_and_external_entities_are_removed() -> None:
    feed = read(
        b'<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + channel("<item><title>a&#xD800;&x;b</title></item>")
    )
    assert feed.entries[0].title.encode("utf-8")
    assert "root:" not in feed.entries[0].title


def test_warnings_before_the_feed_are_skipped() -> None:
    assert read(b"<br />\nWarning: something in line 3\n" + rss([ENTRY])).entries == (ENTRY,)


def test_a_feed_without_entries_is_a_feed() -> None:
    assert read(rss()).entries == ()


@pytest.mark.parametrize(
    "body", [b"", b" \r\n", b"\xef\xbb\xbf", b"<!-- nothing -->", b"<?xml version='1.0'?>\n<!-- x -->", b"<!", b"<?"]
)
def test_an_empty_document_raises_empty_body(body: bytes) -> None:
    with pytest.raises(EmptyBody):
        read(body)


@pytest.mark.parametrize(
    "body", [page(), b"hello", b"{}", b"[1]", b'{"a": ', b"<svg/>", b"\x89PNG\r\n", b"<", b"%PDF-1.4"]
)
def test_another_document_raises_not_a_feed(body: bytes) -> None:
    with pytest.raises(NotAFeed):
        read(body)


@pytest.mark.parametrize(
    "body",
    [
        b"<rss>",
        b"<feed>garbage</feed>",
        b"<rss><channel><item",
        b'{"version": "https://jsonfeed.org/version/1.1", "items": [',
    ],
)
def test_a_damaged_feed_raises_broken_feed(body: bytes) -> None:
    with pytest.raises(BrokenFeed):
        read(body)


@pytest.mark.parametrize("title", ["&#x110000;", "&#99999999999999999999;", "&#-1;", "&#x;"])
def test_invalid_character_references_are_ignored(title: str) -> None:
    try:
        feed = read(channel(f"<item><title>{title}</title></item>"))
    except FeedError:
        return
    assert len(feed.entries) == 1


@pytest.mark.parametrize("name", sorted({*fast_parser.FEED_HANDLERS, "enclosures"} - GIVES_UP))
def test_an_element_named_like_a_result_field_of_feedparser_is_ignored(name: str) -> None:
    """Found by fuzzing: feedparser writes the text of an unknown element into the field of that name."""
    for element in (f"<{name}>text</{name}>", f"<{name} pt>text</{name}>", f"<{name} rel='enclosure' href='x'/>"):
        for within in ("<item>{}</item>", "{}<item/>", "<item>{}<link>/1</link></item>"):
            document = f"<rss><channel><title>A</title>{within.format(element)}</channel></rss"  # not well-formed
            feed = parse(document.encode(), url="https://example.org/feed", headers={})
            assert feed.title or feed.entries


def test_a_document_is_never_opened_as_a_file_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "<rss>").mkdir()
    (tmp_path / "private.xml").write_bytes(rss([item("a")]))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FeedError):
        parse(b"<rss>/../private.xml", url="https://example.com/", headers={})
