"""Feed documents for tests, such as ``rss([item("a"), item("b")])``."""

import datetime as dt
import email.utils
import json
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

from service.model import ParsedEntry

_START_S = 1_700_000_000.0


def item(name: str, *, number: int = 0, **fields: str | float | tuple[str, ...] | None) -> ParsedEntry:
    """Return an entry with an id, link, title and summary made from ``name``, dated by ``number`` (hours)."""
    defaults = {
        "id": f"tag:example.com,2024:{name}",
        "link": f"https://example.com/{name}",
        "title": f"Title {name}",
        "summary": f"Summary of {name}.",
        "published": _START_S + 3600.0 * number,
    }
    return ParsedEntry(**{**defaults, **fields})  # type: ignore[arg-type]  # a test's mistake shows in its failure


def rss(entries: Sequence[ParsedEntry] = (), *, title: str = "Example", link: str = "https://example.com/") -> bytes:
    """Return an RSS 2.0 document, entries in the order given."""
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<rss version="2.0"><channel>'
        f"{_tag('title', title)}{_tag('link', link)}<description/>{''.join(map(_rss_item, entries))}</channel></rss>"
    ).encode()


def atom(entries: Sequence[ParsedEntry] = (), *, title: str = "Example", link: str = "https://example.com/") -> bytes:
    """Return an Atom 1.0 document, entries in the order given."""
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<feed xmlns="http://www.w3.org/2005/Atom">'
        f"{_tag('title', title)}<link href={quoteattr(link)}/>{_tag('id', link)}"
        f"{''.join(map(_atom_entry, entries))}</feed>"
    ).encode()


def json_feed(entries: Sequence[ParsedEntry] = (), *, title: str = "Example", link: str = "https://e.com/") -> bytes:
    """Return a JSON Feed 1.1 document, entries in the order given."""
    return json.dumps(
        {
            "version": "https://jsonfeed.org/version/1.1",
            "title": title,
            "home_page_url": link,
            "items": [
                {
                    "id": entry.id,
                    "url": entry.link,
                    "title": entry.title,
                    "content_html": entry.content or entry.summary,
                    "authors": [{"name": name} for name in entry.authors],
                    "tags": list(entry.tags),
                    "date_published": _iso(entry.published),
                }
                for entry in entries
            ],
        }
    ).encode()


def page(feeds: Sequence[str] = (), *, title: str = "A page") -> bytes:
    """Return an HTML page with links to the RSS feeds at these URLs."""
    links = "".join(f'<link rel="alternate" type="application/rss+xml" href={quoteattr(url)}>' for url in feeds)
    return f"<!doctype html><html><head>{_tag('title', title)}{links}</head><body><p>Hello.</p></body></html>".encode()


def _tag(name: str, text: str) -> str:
    return f"<{name}>{escape(text)}</{name}>" if text else ""


def _rss_item(entry: ParsedEntry) -> str:
    date = "" if entry.published is None else email.utils.formatdate(entry.published, usegmt=True)
    enclosure = f"<enclosure url={quoteattr(entry.enclosure)} length='1' type='audio/mpeg'/>" if entry.enclosure else ""
    return (
        f"<item>{_tag('title', entry.title)}{_tag('link', entry.link)}"
        f'<guid isPermaLink="false">{escape(entry.id)}</guid>'
        f"{_tag('description', entry.summary)}{_tag('pubDate', date)}{enclosure}"
        f"{''.join(_tag('category', tag) for tag in entry.tags)}"
        f"{''.join(_tag('author', name) for name in entry.authors)}</item>"
    )


def _atom_entry(entry: ParsedEntry) -> str:
    return (
        f"<entry>{_tag('title', entry.title)}<link href={quoteattr(entry.link)}/>{_tag('id', entry.id)}"
        f'<summary type="html">{escape(entry.summary)}</summary>{_tag("published", _iso(entry.published) or "")}'
        f"{_tag('updated', _iso(entry.updated) or '')}"
        f"{''.join(f'<author><name>{escape(name)}</name></author>' for name in entry.authors)}"
        f"{''.join(f'<category term={quoteattr(tag)}/>' for tag in entry.tags)}</entry>"
    )


def _iso(unix_s: float | None) -> str | None:
    return None if unix_s is None else dt.datetime.fromtimestamp(unix_s, dt.UTC).isoformat()


_PARAGRAPHS = (
    """<p>It was <em>late</em> when the bread came out of the oven; Zoë — “who else?” — was
<a href="https://blog.example.com/people/{0}?a=1&amp;b=2">already there</a>, and so were all the neighbours.</p>\n""",
    '<figure><img src="https://cdn.example.com/{0}.jpg" alt="A loaf" width="640" height="480"/></figure>\n',
    "<p>Mix 500&nbsp;g of flour with water, wait for {0} minutes, and fold. Wait again &#8211; it is worth it.</p>\n",
    '<blockquote class="wp-block-quote"><p>The best thing since sliced bread</p></blockquote>\n',
)


def typical_rss(numbers: Sequence[int]) -> bytes:
    """Return a blog's RSS as WordPress writes it, newest entry first; 33 KB for 30 entries."""
    items = "\n".join(
        f"""<item>
<title>How I bake bread, part {number} &#8211; flour &amp; water</title>
<link>https://blog.example.com/2024/03/{number}/how-i-bake-bread/</link>
<comments>https://blog.example.com/2024/03/{number}/how-i-bake-bread/#respond</comments>
<dc:creator><![CDATA[Zoë]]></dc:creator>
<pubDate>{email.utils.formatdate(_START_S + 3600.0 * number)}</pubDate>
<category><![CDATA[Bread]]></category><category><![CDATA[Notes]]></category>
<guid isPermaLink="false">https://blog.example.com/?p={number}</guid>
<description><![CDATA[It was late when the bread came out of the oven, part {number}. [&#8230;]]]></description>
<content:encoded><![CDATA[{"".join(_PARAGRAPHS).format(number)}]]></content:encoded>
<wfw:commentRss>https://blog.example.com/2024/03/{number}/how-i-bake-bread/feed/</wfw:commentRss>
<slash:comments>{number % 7}</slash:comments>
</item>"""
        for number in reversed(numbers)
    )
    return f"""<?xml version="1.0" encoding="UTF-8"?><rss version="2.0"
 xmlns:content="http://purl.org/rss/1.0/modules/content/" xmlns:wfw="http://wellformedweb.org/CommentAPI/"
 xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:atom="http://www.w3.org/2005/Atom"
 xmlns:sy="http://purl.org/rss/1.0/modules/syndication/" xmlns:slash="http://purl.org/rss/1.0/modules/slash/">
<channel><title>Bread &amp; butter</title>
<atom:link href="https://blog.example.com/feed/" rel="self" type="application/rss+xml" />
<link>https://blog.example.com</link><description>All about bread</description>
<language>en-GB</language><sy:updatePeriod>hourly</sy:updatePeriod><sy:updateFrequency>1</sy:updateFrequency>
<generator>https://wordpress.org/?v=6.4.3</generator>
<image><url>https://blog.example.com/icon.png</url><title>Bread</title><link>https://blog.example.com</link></image>
{items}
</channel></rss>""".encode()


def typical_atom(numbers: Sequence[int]) -> bytes:
    """Return a blog's Atom as static site generators write it, newest entry first; 33 KB for 30 entries."""
    entries = "\n".join(
        f"""<entry><title type="html">How I bake bread, part {number} &amp;#8211; flour</title>
<link href="https://blog.example.com/2024/03/{number}/" rel="alternate" type="text/html" title="Part {number}"/>
<published>{_iso(_START_S + 3600.0 * number)}</published><updated>{_iso(_START_S + 3600.0 * number)}</updated>
<id>https://blog.example.com/2024/03/{number}</id><author><name>Zoë</name></author><category term="bread"/>
<summary type="html">It was late when the bread came out of the oven.</summary>
<content type="html" xml:base="https://blog.example.com/">{escape("".join(_PARAGRAPHS).format(number))}</content>
</entry>"""
        for number in reversed(numbers)
    )
    return f"""<?xml version="1.0" encoding="utf-8"?><feed xmlns="http://www.w3.org/2005/Atom">
<generator uri="https://jekyllrb.com/" version="4.3.2">Jekyll</generator>
<link href="https://blog.example.com/feed.xml" rel="self" type="application/atom+xml"/>
<link href="https://blog.example.com/" rel="alternate" type="text/html"/><updated>2024-03-01T12:00:00+00:00</updated>
<id>https://blog.example.com/feed.xml</id><title type="html">Bread &amp;amp; butter</title>
{entries}
</feed>""".encode()
