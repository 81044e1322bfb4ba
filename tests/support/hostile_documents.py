"""Documents that attack parsers, each within the body limit of 5 MiB.

Documents that exceed the parser's limits are in the tests of the sandbox.
"""

from collections.abc import Iterator

from tests.support.feed_corpus import Sample

_JSON = '{"version": "https://jsonfeed.org/version/1.1", "items": '
_BODY_BYTES = 5 * 1024 * 1024


def hostile() -> Iterator[Sample]:
    """Yield known attacks on parsers of XML, HTML and JSON."""
    for name, text in {**_entities(), **_sizes(), **_oddities()}.items():
        body = text.encode("utf-8", "surrogatepass")
        assert len(body) <= _BODY_BYTES, name
        yield Sample(name, body, "text/xml; charset=utf-8")
    whole = _rss("<item><title>x</title></item>")
    yield Sample("UTF-16 of odd length", whole.encode("utf-16")[:-1])
    yield Sample("UTF-16 that is marked as the other one", b"\xfe\xff" + whole.encode("utf-16-le"))
    yield Sample("UTF-8 that is marked as UTF-16", b"\xff\xfe" + whole.encode())
    yield Sample("UTF-7 that hides markup", b"+ADw-rss+AD4-" + whole.encode(), "text/xml; charset=utf-7")
    yield Sample("a rare encoding by name", whole.encode(), "text/xml; charset=unicode_escape")
    yield Sample("a gzip as it is", b"\x1f\x8b\x08\x00\x00\x00\x00\x00" + bytes(10_000))
    yield Sample("nothing but bytes", bytes(range(256)) * 4_000)


def _rss(inner: str, before: str = "") -> str:
    return f'{before}<rss version="2.0"><channel><title>T</title>{inner}</channel></rss>'


def _entities() -> dict[str, str]:
    laughs = '<!ENTITY a0 "ha">' + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 12))
    return {
        "a billion laughs": _rss("<item><title>&a11;</title></item>", f"<!DOCTYPE rss [{laughs}]>"),
        "a quadratic blow-up": _rss(f"<item>{'&a;' * 50_000}</item>", f'<!DOCTYPE rss [<!ENTITY a "{"x" * 50_000}">]>'),
        "an external entity": _rss("<item>&x;</item>", '<!DOCTYPE rss [<!ENTITY x SYSTEM "file:///etc/passwd">]>'),
        "an external parameter": _rss("", '<!DOCTYPE rss [<!ENTITY % x SYSTEM "http://127.0.0.1:9/x"> %x;]>'),
        "an external document type": _rss("", '<!DOCTYPE rss SYSTEM "http://127.0.0.1:9/x.dtd">'),
        "an entity of itself": _rss("<item>&x;</item>", '<!DOCTYPE rss [<!ENTITY x "&x;">]>'),
        "an endless document type": "<!DOCTYPE rss [" + "<!ENTITY x 'y'>" * 100_000,
        "impossible references": _rss(f"<item><title>{'&#x110000;&#0;&#xD800;' * 1_000}</title></item>"),
        "a reference of many digits": _rss(f"<item><title>&#{'9' * 1_000_000};</title></item>"),
        "many ampersands": _rss(f"<item><title>{'&' * 100_000}</title></item>"),
    }


def _sizes() -> dict[str, str]:
    many = {
        "40,000 equal attributes": "<item " + "a='x' " * 40_000 + "/>",
        "40,000 namespaces": "<item " + " ".join(f"xmlns:a{n}='u{n}'" for n in range(40_000)) + "/>",
        "10,000 prefixes of one namespace": "".join(f"<a{n}:b xmlns:a{n}='u'/>" for n in range(10_000)),
        "10,000 unclosed tags": "<b>" * 10_000,
        "100,000 items": "<item><title>x</title></item>" * 100_000,
        "200,000 empty items": "<item/>" * 200_000,
        "10,000 items in items": "<item>" * 10_000,
        "100,000 links": "<link>https://example.com/</link>" * 100_000,
        "100,000 categories": "<item>" + "".join(f"<category>{n}</category>" for n in range(100_000)) + "</item>",
        "100,000 authors": "<item>" + "<author>a@example.com (A)</author>" * 100_000 + "</item>",
        "100,000 comments": "<!-- x -->" * 100_000,
        "a title of 5 MB": f"<item><title>{'x' * 5_000_000}</title></item>",
        "a title of 5 MB of markup": f"<item><title>{_escaped('<b>' * 500_000)}</title></item>",
        "a title of 2 MB of spaces": f"<item><title>x{' ' * 2_000_000}y</title></item>",
        "a link of 2 MB": f"<item><link>https://example.com/{'x' * 2_000_000}</link></item>",
        "a date of 2 MB": f"<item><pubDate>{'1' * 2_000_000}</pubDate></item>",
        "a date of many words": f"<item><pubDate>{'1 ' * 1_000_000}</pubDate></item>",
        "an author of many dots": f"<item><author>{'a.' * 1_000}@{'b.' * 1_000}</author></item>",
        "a tag of 2 MB": f"<{'x' * 2_000_000}/>",
        "a guid of brackets": f"<item><guid>http://{'[' * 100_000}</guid></item>",
        "skipHours without end": "<skipHours>" * 10_000,
    }
    return {name: _rss(inner) for name, inner in many.items()}


def _escaped(markup: str) -> str:
    return markup.replace("<", "&lt;")


def _oddities() -> dict[str, str]:
    return {
        "nothing": "",
        "only white space": " \n" * 500_000,
        "only comments": "<!-- x -->" * 100_000,
        "a comment without end": "<!--" * 500_000,
        "instructions without end": "<?" * 500_000,
        "declarations without end": "<!" * 500_000,
        "CDATA without end": _rss("<![CDATA[" * 200_000),
        "5 MB of less-than signs": "<" * 5_000_000,
        "5 MB of brackets": "[" * 5_000_000,
        "5 MB of braces": '{"a":' * 1_000_000,
        "a JSON Feed that nests": _JSON + "[" * 1_000_000,
        "a JSON Feed of wrong types": _JSON + '[[], 1, {"id": {}}, null]}',
        "a JSON Feed of big numbers": _JSON + f'[{{"id": 1e999}}, {{"id": {"9" * 4_000}}}]}}',
        "half a character": _rss("<item><title>\ud800</title></item>"),
        "null characters": "\0".join(_rss("<item><title>x</title></item>")),
        "entries of nothing": _rss("<item/><item><title/></item><item><link/></item>"),
        "impossible dates": _rss(
            "".join(
                f"<item><pubDate>{date}</pubDate><title>x</title></item>"
                for date in (
                    "31 Feb 2024 25:61:61 +9999",
                    "0000-00-00",
                    "1e9",
                    "-1",
                    "99999-01-01T00:00:00Z",
                    "T" * 1_000,
                )
            )
        ),
        "bidirectional overrides": _rss("<item><title>\u202egnp.exe\u2066\u200b</title></item>"),
        "a page of scripts": "<html>" + "<script>" * 100_000,
        "a page of links": "<html>" + "<link rel='alternate' type='application/rss+xml' href='http://[::'>" * 50_000,
    }
