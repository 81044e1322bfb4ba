"""The same two entries in every feed dialect, with the expected results."""

import datetime as dt
import json
from typing import NamedTuple

URL = "https://example.com/blog/feed"
"""The URL of each document."""


class Stated(NamedTuple):
    """The expected values of one entry; ``date_s`` (Unix s) is the publication date, else the update date."""

    id: str
    link: str
    title: str
    date_s: float | None


class Dialect(NamedTuple):
    """A well-formed document without an XML declaration, and its entries."""

    text: str
    entries: tuple[Stated, ...]


_FIRST_S = dt.datetime(2024, 3, 1, 12, 0, tzinfo=dt.UTC).timestamp()
_SECOND_S = dt.datetime(2024, 2, 29, 23, 59, 59, tzinfo=dt.UTC).timestamp()
_LINKS = ("https://example.com/blog/1?a=1&b=2", "https://example.com/blog/2")
_TITLES = ("Bread & butter", "Zoë: “2” €")
_IDS = ("tag:example.com,2024:1", "tag:example.com,2024:2")


def _stated(
    ids: tuple[str, str] = _IDS, dates_s: tuple[float | None, float | None] = (_FIRST_S, _SECOND_S)
) -> tuple[Stated, ...]:
    return tuple(map(Stated, ids, _LINKS, _TITLES, dates_s))


def _rss(version: str, extra: tuple[str, str], attributes: str = "") -> str:
    return f"""<rss version="{version}"{attributes}><channel>
<title>A blog</title><link>https://example.com/blog/</link><description>About</description><language>en</language>
<item><title>Bread &amp; butter</title><link>https://example.com/blog/1?a=1&amp;b=2</link>
<description>&lt;p&gt;One&lt;/p&gt;</description>{extra[0]}</item>
<item><title><![CDATA[Zoë: “2” €]]></title><link> https://example.com/blog/2
</link><description><![CDATA[<p>Two</p>]]></description>{extra[1]}</item>
</channel></rss>"""


def _rdf(namespace: str, prefix: str = "", extra: tuple[str, str] = ("", "")) -> str:
    p, declared = (f"{prefix}:", f"xmlns:{prefix}") if prefix else ("", "xmlns")
    return f"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" {declared}="{namespace}"
 xmlns:dc="http://purl.org/dc/elements/1.1/">
<{p}channel rdf:about="{URL}"><{p}title>A blog</{p}title><{p}link>https://example.com/blog/</{p}link></{p}channel>
<{p}item rdf:about="{_IDS[0]}"><{p}title>Bread &amp; butter</{p}title>
<{p}link>https://example.com/blog/1?a=1&amp;b=2</{p}link>{extra[0]}</{p}item>
<{p}item rdf:about="{_IDS[1]}"><{p}title>Zoë: “2” €</{p}title><{p}link>https://example.com/blog/2</{p}link>{extra[1]}</{p}item>
</rdf:RDF>"""


def _atom(dates: tuple[str, str], attributes: str, prefix: str = "") -> str:
    p = prefix
    return f"""<{p}feed {attributes}><{p}title>A blog</{p}title><{p}id>{URL}</{p}id>
<{p}link rel="self" href="/blog/feed"/><{p}link rel="alternate" type="text/html" href="/blog/"/>
<{p}entry><{p}title type="html">Bread &amp;amp; butter</{p}title><{p}id>{_IDS[0]}</{p}id>
<{p}link rel="edit" href="/edit/1"/><{p}link rel="alternate" type="text/html" href="/blog/1?a=1&amp;b=2"/>{dates[0]}
<{p}content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><p>One <b>bold</b></p></div></{p}content></{p}entry>
<{p}entry><{p}title>Zoë: “2” €</{p}title><{p}id> {_IDS[1]} </{p}id><{p}link href="2"/>{dates[1]}
<{p}summary>Two</{p}summary></{p}entry></{p}feed>"""


def _json(version: str) -> str:
    items = [
        {"id": one_id, "url": link, "title": title, "content_text": "x", "date_published": date}
        for one_id, link, title, date in zip(
            _IDS, _LINKS, _TITLES, ("2024-03-01T13:00:00+01:00", "2024-02-29T23:59:59Z"), strict=True
        )
    ]
    return json.dumps(
        {"version": f"https://jsonfeed.org/version/{version}", "title": "A blog", "items": items}, ensure_ascii=False
    )


def _cdf() -> str:
    return """<CHANNEL HREF="https://example.com/blog/"><TITLE>A blog</TITLE>
<ITEM HREF="https://example.com/blog/1?a=1&amp;b=2" LASTMOD="2024-03-01T12:00:00Z">
<TITLE>Bread &amp; butter</TITLE></ITEM>
<ITEM HREF="https://example.com/blog/2"><TITLE>Zoë: “2” €</TITLE></ITEM></CHANNEL>"""


_GUIDS = tuple(f'<guid isPermaLink="false">{each}</guid>' for each in _IDS)
_RFC_822 = ("<pubDate>Fri, 01 Mar 2024 07:00:00 EST</pubDate>", "<pubDate>29 Feb 24 23:59:59 +0000</pubDate>")
_DC_DATES = ("<dc:date>2024-03-01T13:00+01:00</dc:date>", "<dc:date>2024-02-29T23:59:59Z</dc:date>")
_PUBLISHED = ("<published>2024-03-01T12:00:00.000Z</published>", "<published>2024-02-29T15:59:59-08:00</published>")
_ATOM = 'xmlns="http://www.w3.org/2005/Atom"'
_UNDATED = _stated(("", ""), (None, None))
_GUID_DATED = (_GUIDS[0] + _RFC_822[0], _GUIDS[1] + _RFC_822[1])

DIALECTS = {
    "rss 0.90": Dialect(_rdf("http://my.netscape.com/rdf/simple/0.9/"), _stated(dates_s=(None, None))),
    "rss 0.91": Dialect(_rss("0.91", ("", "")), _UNDATED),
    "rss 0.92": Dialect(_rss("0.92", ("", "")), _UNDATED),
    "rss 1.0": Dialect(_rdf("http://purl.org/rss/1.0/", extra=_DC_DATES), _stated()),
    "rss 1.0 with a prefix": Dialect(_rdf("http://purl.org/rss/1.0/", "rss", _DC_DATES), _stated()),
    "rss 1.0 in an unknown namespace": Dialect(_rdf("http://example.com/rss#", extra=_DC_DATES), _stated()),
    "rss 2.0": Dialect(_rss("2.0", _GUID_DATED), _stated()),
    "rss 2.0 whose guids are its links": Dialect(
        _rss("2.0", (f"<guid>{_LINKS[0].replace('&', '&amp;')}</guid>", f"<guid>{_LINKS[1]}</guid>")),
        _stated(_LINKS, (None, None)),
    ),
    "rss 2.0 in a namespace": Dialect(_rss("2.0", _GUID_DATED, ' xmlns="http://backend.userland.com/rss2"'), _stated()),
    "rss 2.0 with Dublin Core": Dialect(
        _rss("2.0", _DC_DATES, ' xmlns:dc="http://purl.org/dc/elements/1.1/"'), _stated(("", ""))
    ),
    "rss without a version": Dialect(_rss("2.0", _GUID_DATED).replace(' version="2.0"', ""), _stated()),
    "atom 0.3": Dialect(
        _atom(
            ("<issued>2024-03-01T12:00:00Z</issued>", "<issued>2024-02-29T23:59:59Z</issued>"),
            'version="0.3" xmlns="http://purl.org/atom/ns#"',
        ),
        _stated(),
    ),
    "atom 1.0": Dialect(_atom(_PUBLISHED, _ATOM), _stated()),
    "atom 1.0 with xml:base": Dialect(_atom(_PUBLISHED, f'{_ATOM} xml:base="https://example.com/blog/"'), _stated()),
    "atom 1.0 with a prefix": Dialect(
        _atom(
            ("<a:published>2024-03-01T12:00:00Z</a:published>", "<a:published>2024-02-29T23:59:59Z</a:published>"),
            'xmlns:a="http://www.w3.org/2005/Atom"',
            "a:",
        ),
        _stated(),
    ),
    "atom 1.0 with updated dates only": Dialect(
        _atom(("<updated>2024-03-01T12:00:00+00:00</updated>", "<updated>2024-02-29t23:59:59z</updated>"), _ATOM),
        _stated(),
    ),
    "atom without a namespace": Dialect(_atom(_PUBLISHED, ""), _stated()),
    "cdf": Dialect(_cdf(), _stated(("", ""), (_FIRST_S, None))),
    "json feed 1.0": Dialect(_json("1"), _stated()),
    "json feed 1.1": Dialect(_json("1.1"), _stated()),
}
