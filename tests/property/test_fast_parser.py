"""The fast parser returns feedparser's result or None, for feeds with all elements in any order."""

from xml.sax.saxutils import escape, quoteattr

from hypothesis import given as for_any
from hypothesis import strategies as st

from service.errors import BrokenFeed
from service.feeds.parsing import fast_parser, feedparser_adapter
from service.model import ParsedFeed

URL = "https://example.com/blog/feed"
SPACES = (
    'xmlns:atom="http://www.w3.org/2005/Atom" xmlns:dc="http://purl.org/dc/elements/1.1/" '
    'xmlns:content="http://purl.org/rss/1.0/modules/content/" xmlns:media="http://search.yahoo.com/mrss/" '
    'xmlns:itunes="http://www.itunes.com/dtds/podcast-1.0.dtd" xmlns:sy="http://purl.org/rss/1.0/modules/syndication/" '
    'xmlns:dcterms="http://purl.org/dc/terms/" xmlns:x="http://example.com/x" xmlns:thr="http://purl.org/syndication/'
    'thread/1.0" xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:georss="http://www.georss.org/georss"'
)
PROSE = st.one_of(
    st.sampled_from(
        (
            "", " ", "x", "Bread & butter", "AT&amp;T", "<b>bold</b> &#8217;", "<p>One</p>", "a < b", "</b>", "&nbsp;",
            "Ã©tÃ©", "d\xe9 \x93quoted\x94", "\x85", " \u00a0padded\u3000", "Zoë: “2” €", "мир", "1,2, ,3", "]]&gt;",
            "Ann", "ann@example.com", "ann@example.com (Ann)", "Ann <ann@example.photography>", "60", "hourly", "en_GB",
        )
    ),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=12),
)  # fmt: skip
LINKS = st.sampled_from(
    (
        "https://example.com/1", "http://example.com/a?b=1&c=2", "http://example.com/?a&b;c", "//example.org/a", "a b",
        "../x", "?q", "#f", "tag:x", "https://exämple.com/ü", "https:///three/slashes", "HTTP://EXAMPLE.com/?", "",
        "javascript:x", "mailto:a@b.c", "http://[::1", "http://example.com/a;b", "https://example.com/a#", " x ",
    )
)  # fmt: skip
DATES = st.sampled_from(
    (
        "Fri, 01 Mar 2024 07:00:00 EST", "1 March 2024 7:00 GMT", "2024-03-01T12:00:00Z", "2024-03-01", "",
        "2024-03-01 12:00:00", "2024-03-01T12:00:00.5-08:30", "Sat, 01 Jan 0001 00:00:00 +0100",
        "Tue, 5 Mar 2024 10:00:00 -0030", " Tue, 05 Mar 2024 10:00:00 GMT\n", "5 Mar 2024 10:00 Z", "9999-12-31",
        "2024-03-01t12:00-08:00",
        "29 Feb 24 23:59 +0000", "Fri, 31 Apr 2024 25:00:00 GMT", "9999-12-31T23:59:60Z", "yesterday",
    )
)  # fmt: skip
PROSES = (
    "title", "description", "summary", "content", "subtitle", "rights", "dc:title", "dc:description", "content:encoded",
    "media:title", "media:description", "itunes:summary", "itunes:subtitle",
)  # fmt: skip
PLACES = ("link", "guid", "id", "atom:id", "atom:link", "comments", "uri")
TIMES = ("pubDate", "published", "updated", "dc:date", "dcterms:modified", "dcterms:issued", "lastBuildDate")
OTHERS = (
    "category", "author", "source", "enclosure", "language", "ttl", "keywords", "name", "dc:creator", "dc:subject",
    "dc:language", "media:content", "media:thumbnail", "media:keywords", "media:category", "media:credit",
    "itunes:author", "itunes:keywords", "itunes:category", "itunes:image", "itunes:explicit", "sy:updatePeriod",
    "sy:updateFrequency", "x:thing", "x:title", "thr:total", "managingEditor", "contributor", "generator",
    "x:y", "georss:point", "width", "itunes:duration",
)  # fmt: skip
WILD = ("textInput", "image", "links", "itunes:owner", "item", "entry", "body", "abstract", "tags", "svg")
RELS = ("alternate", "self", "hub", "enclosure", "next", "prev-archive", "self hub", "Alternate", "edit")
TYPES_OF_FILES = st.sampled_from(("audio/mpeg", "Video/MP4", "image/png", "text/html", "audio", "x" * 101))
NUMBERS = st.sampled_from(("1", "0", "34215000", "1:02:03", "62:03", "61.5", "-1", "1e3", "9" * 13, "\u0661", "&amp;"))
MEDIUMS = st.sampled_from(("audio", "video", "image"))
TYPES = ("text/html", "html", "text", "HTML", "plain", "application/rss+xml", "text/plain", "image/png")


def attributes(**values: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, str]]:
    """Return a strategy for a subset of these attributes; ``_`` in a name means ``:``."""
    spelled = {name.replace("_", ":"): each for name, each in values.items()}
    return st.one_of(st.just({}), st.fixed_dictionaries({}, optional=spelled))


def element(name: str, given: dict[str, str], within: str) -> str:
    return f"<{name}{''.join(f' {each}={quoteattr(value)}' for each, value in given.items())}>{within}</{name}>"


def written(text: str, *, as_cdata: bool) -> str:
    return f"<![CDATA[{text}]]>" if as_cdata and "]]>" not in text else escape(text)


def leaves(
    names: tuple[str, ...], within: st.SearchStrategy[str], given: st.SearchStrategy[dict[str, str]]
) -> st.SearchStrategy[str]:
    return st.builds(element, st.sampled_from(names), given, within)


def as_xml(texts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.builds(lambda text, as_cdata: written(text, as_cdata=as_cdata), texts, as_cdata=st.booleans())


XHTML = as_xml(PROSE).map(
    lambda text: f'<div xmlns="http://www.w3.org/1999/xhtml"> <p class="a&amp;b">{text}<br/></p>x</div>'
)
FILES = st.one_of(
    leaves(("enclosure",), st.just(""), attributes(url=LINKS, href=LINKS, length=NUMBERS, type=TYPES_OF_FILES)),
    leaves(
        ("media:content", "media:thumbnail", "itunes:image", "atom:link"),
        st.sampled_from(("", " ", "b.jpg")),
        attributes(
            url=LINKS,
            href=LINKS,
            rel=st.just("enclosure"),
            type=TYPES_OF_FILES,
            medium=MEDIUMS,
            fileSize=NUMBERS,
            duration=NUMBERS,
            width=NUMBERS,
            title=PROSE,
        ),
    ),
    leaves(("itunes:duration",), as_xml(NUMBERS), st.just({})),
)
LEAVES = st.one_of(
    leaves(PROSES, as_xml(PROSE), attributes(type=st.sampled_from(TYPES), xml_lang=PROSE, xml_base=LINKS)),
    leaves(PROSES, as_xml(PROSE), st.just({})),
    leaves(("title", "summary", "content", "rights"), XHTML, st.just({"type": "xhtml"})),
    leaves(PLACES, as_xml(LINKS), st.just({})),
    leaves(("guid",), as_xml(LINKS), attributes(isPermaLink=st.sampled_from(("true", "false", "True")))),
    leaves(
        ("link", "atom:link"),
        st.just(""),
        attributes(href=LINKS, rel=st.sampled_from(RELS), type=st.sampled_from(TYPES), title=PROSE),
    ),
    FILES,
    leaves(TIMES, as_xml(DATES), st.just({})),
    leaves(OTHERS, as_xml(PROSE), st.just({})),
    leaves(OTHERS, as_xml(PROSE), attributes(term=PROSE, label=PROSE, domain=PROSE, text=PROSE, url=LINKS)),
    leaves((*OTHERS, *PROSES, *PLACES, *WILD), as_xml(PROSE), attributes(xml_base=LINKS, x_href=LINKS, HREF=LINKS)),
)
NESTS = st.builds(
    lambda name, leaves: element(name, {}, "\n".join(leaves)),
    st.sampled_from(
        ("media:group", "media:content", "author", "source", "image", "x:thing", "itunes:owner", "contributor")
    ),
    st.lists(
        st.one_of(LEAVES, leaves(("name", "email", "uri", "title", "url"), as_xml(PROSE), st.just({}))), max_size=3
    ),
)
FIELDS = st.lists(st.one_of(LEAVES, LEAVES, LEAVES, NESTS), max_size=6).map("\n".join)
LANGUAGES = st.sampled_from(("", "de_AT"))


def rss(fields: list[str], given: dict[str, str]) -> str:
    about, *items = fields
    within = about + "".join(element("item", given, item) for item in items)
    return f'<rss version="2.0" {SPACES}><channel>{within}</channel></rss>'


def atom(fields: list[str], given: dict[str, str]) -> str:
    about, *entries = fields
    within = "".join(element("entry", given, entry) for entry in entries) + about
    return f'<feed xmlns="http://www.w3.org/2005/Atom" {SPACES}>{within}</feed>'


def rdf(fields: list[str], given: dict[str, str]) -> str:
    about, *items = fields
    within = element("channel", given, about) + "".join(element("item", given, item) for item in items)
    return f'<rdf:RDF xmlns="http://purl.org/rss/1.0/" {SPACES}>{within}</rdf:RDF>'


DOCUMENTS = st.builds(
    lambda build, fields, given: build(fields, given),
    st.sampled_from((rss, atom, rdf)),
    st.lists(FIELDS, min_size=1, max_size=3),
    attributes(xml_base=LINKS, xml_lang=PROSE, lang=PROSE, rdf_about=LINKS, x_y=PROSE),
)


DOCUMENTS_WITH_FILES = st.builds(
    lambda build, files, as_group: build(
        ["<title>T</title>", element("media:group", {}, files) if as_group else files], {}
    ),
    st.sampled_from((rss, atom, rdf)),
    st.lists(FILES, min_size=1, max_size=5).map("".join),
    st.booleans(),
)


def by_feedparser(text: str, language: str) -> ParsedFeed | None:
    try:
        return feedparser_adapter.parse(text, url=URL, language=language)
    except BrokenFeed:
        return None


@for_any(text=DOCUMENTS, language=LANGUAGES)
def test_fast_parser_returns_the_result_of_feedparser_or_none(text: str, language: str) -> None:
    feed = fast_parser.parse(text, url=URL, language=language)
    if feed is not None:
        assert feed == by_feedparser(text, language)


@for_any(text=DOCUMENTS_WITH_FILES)
def test_both_parsers_read_the_same_files(text: str) -> None:
    feed = fast_parser.parse(text, url=URL, language="")
    if feed is not None:
        assert feed == by_feedparser(text, "")
