"""Generated feed documents in every dialect, with encodings and defects that occur in practice.

``encodings`` and ``defects`` have the expected result unless the document is ambiguous; ``damaged`` documents may have
any result or a ``FeedError``.
"""

import codecs
from collections.abc import Iterator
from typing import NamedTuple

from tests.support.feed_dialects import DIALECTS, Stated
from tests.support.generator_feeds import documents

_SCRIPTS = {
    "windows-1251": "Привет, мир",
    "koi8-r": "Привет, мир",
    "gb18030": "你好世界",
    "big5": "你好世界",
    "shift_jis": "こんにちは世界",
    "euc-jp": "こんにちは世界",
    "euc-kr": "안녕하세요",
    "iso-8859-1": "Zoë déjà vu",
    "iso-8859-2": "Zażółć gęślą jaźń",
    "iso-8859-7": "Καλημέρα",
    "iso-8859-15": "Cœur à 5 €",
    "windows-1252": "“Zoë” 5 €",
    "utf-8": "Zoë, мир, 世界",
}
_UNICODE = {
    "utf-8": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}


class Sample(NamedTuple):
    """A document as received. ``titles`` are the expected entry titles; None if ambiguous."""

    name: str
    body: bytes
    content_type: str = ""
    titles: tuple[str, ...] | None = None


def encodings() -> Iterator[Sample]:
    """Yield documents in every encoding, declared correctly, wrongly, twice, or not at all."""
    for encoding, title in _SCRIPTS.items():
        other = "koi8-r" if encoding != "koi8-r" else "windows-1251"
        for place, prolog, content_type in (
            ("the prolog", encoding, ""),
            ("the prolog, in capitals", encoding.upper(), "application/octet-stream"),
            ("the prolog, not the header", encoding, "text/xml"),
            ("the header", "", f"application/rss+xml; charset={encoding}"),
            ("the header, in quotes", "", f'text/xml; charset="{encoding}"; x=y'),
            ("both", encoding, f"text/xml; charset={encoding}"),
            ("the prolog; the header says utf-8", encoding, "text/xml; charset=utf-8"),
            ("the prolog; the header makes no sense", encoding, "text/xml; charset=x-nonsense"),
            ("the header; the prolog says utf-8", "utf-8", f"text/xml; charset={encoding}"),
            ("the header; the prolog makes no sense", "x-nonsense", f"text/xml; charset={encoding}"),
            ("the header; the prolog says utf-16", "utf-16", f"text/xml; charset={encoding}"),
        ):
            yield Sample(f"{encoding} by {place}", _titled(title, prolog).encode(encoding), content_type, (title,))
        for place, prolog, content_type in (
            ("nothing", "", ""),
            ("the prolog wrongly", other, ""),
            ("the header wrongly", "", f"text/xml; charset={other}"),
        ):
            yield Sample(f"{encoding} by {place}", _titled(title, prolog).encode(encoding), content_type)
    title = _SCRIPTS["utf-8"]
    for encoding, mark in _UNICODE.items():
        for prolog in ("", "utf-8", "utf-16", "iso-8859-1"):
            for charset in ("", "; charset=utf-8", "; charset=utf-16", "; charset=iso-8859-1"):
                name = f"{encoding} as {prolog or 'nothing'}{charset}"
                body = _titled(title, prolog).encode(encoding)
                yield Sample(f"{name}, marked", mark + body, f"text/xml{charset}", (title,))
                yield Sample(name, body, f"text/xml{charset}", (title,))
        json = DIALECTS["json feed 1.1"]
        for written, body in (("", b""), (", marked", mark)):
            yield Sample(f"json in {encoding}{written}", body + json.text.encode(encoding), "", _titles(json.entries))


def defects() -> Iterator[Sample]:
    """Yield every dialect with defects that leave its entries recognisable."""
    for name, dialect in DIALECTS.items():
        titles = _titles(dialect.entries)
        text = dialect.text
        is_json = text.startswith("{")
        for defect, before in (*_ANYWHERE.items(), *({} if is_json else _BEFORE_XML).items()):
            hidden = name == "cdf" and "warning" in defect  # any document may hold a "channel"
            yield Sample(f"{name} after {defect}", before + text.encode(), "", None if hidden else titles)
        if is_json:
            continue
        for defect, after in _AFTER.items():
            yield Sample(f"{name} before {defect}", text.encode() + after, "", titles)
        end = text.rindex("</")
        for defect, within in _WITHIN.items():
            yield Sample(f"{name} with {defect}", (text[:end] + within + text[end:]).encode(), "", titles)
        yield Sample(f"{name} with CR LF", text.replace("\n", "\r\n").encode(), "", titles)
        yield Sample(f"{name} with a bare ampersand", text.replace("&amp;b=2", "&b=2").encode(), "", titles)
        yield Sample(f"{name} within a page", b"<html><body><h1>Oops</h1>" + text.encode() + b"</body></html>")


def damaged() -> Iterator[Sample]:
    """Yield documents that are truncated or corrupted."""
    for name, dialect in DIALECTS.items():
        body = ('<?xml version="1.0"?>\n' * (not dialect.text.startswith("{")) + dialect.text).encode()
        for end in range(0, len(body), 31):
            yield Sample(f"{name} cut at {end}", body[:end])
        for place in range(5, len(body), 113):
            for junk in (b"\xff", b"\x00", b"<", b"&", b'"', b"]]>", b"\xed\xa0\x80"):
                yield Sample(f"{name} with {junk!r} at {place}", body[:place] + junk + body[place + 1 :])
    for encoding in ("utf-16", "utf-32"):
        body = DIALECTS["atom 1.0"].text.encode(encoding)
        for end in range(0, len(body), 151):
            yield Sample(f"{encoding} cut at {end}", body[:end])


_ANYWHERE = {
    "nothing": b"",
    "a byte order mark": codecs.BOM_UTF8,
    "white space": b" \r\n\t\n",
    "a byte order mark and white space": codecs.BOM_UTF8 + b"\n\n",
}
_BEFORE_XML = {
    "a declaration": b'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>',
    "white space and a declaration": b'\n \n<?xml version="1.0"?>',
    "two byte order marks": codecs.BOM_UTF8 * 2,
    "white space, a byte order mark and a declaration": b"\n" + codecs.BOM_UTF8 + b'<?xml version="1.0"?>',
    "a declaration of XML 1.1": b'<?xml version="1.1"?>',
    "a style sheet": b'<?xml version="1.0"?><?xml-stylesheet type="text/xsl" href="/x.xsl"?><!-- hello -->',
    "a document type": b'<!DOCTYPE rss PUBLIC "-//Netscape Communications//DTD RSS 0.91//EN" "http://example.com/d.dtd">',
    "a document type with entities": b'<!DOCTYPE rss [<!ENTITY nbsp "&#160;"><!ENTITY x "y">]>',
    "a warning in plain text": b"Notice: Undefined variable: x in /var/www/feed.php on line 7\n",
    "a warning in HTML": b"<br />\n<b>Warning</b>: session_start(): x in <b>/feed.php</b> on line <b>2</b><br />\n",
    "a warning and a declaration": b'PHP Warning: x\n<?xml version="1.0" encoding="UTF-8"?>\n',
    "null bytes": b"\0\0",
}
_AFTER = {
    "white space": b"\n\n  ",
    "a comment": b"<!-- 0.12 s -->",
    "a script": b'<script async src="//ads.example.com/x.js"></script>',
    "a warning": b"<br />\n<b>Notice</b>: x in <b>/feed.php</b>",
    "null bytes": b"\0\0",
}
_WITHIN = {
    "an element without namespace": "<x:y><media:content url='a'/></x:y>",
    "undefined entities": "<copyright>&copy; &nbsp; &hellip; &nonsense;</copyright>",
    "an unclosed element": "<generator>",
    "a bare less-than": "<generator>a < b</generator>",
    "an impossible reference": "<generator>&#0;&#xD800;&#x110000;&#99999999999;</generator>",
    "control characters": "<generator>\x01\x0b\x1f\x7f\ufffe</generator>",
    "an unquoted attribute": "<generator a=b c>x</generator>",
    "an attribute twice": "<generator a='1' a='2'>x</generator>",
    "a nested CDATA section": "<generator><![CDATA[<![CDATA[x]]>]]></generator>",
    "1,000 attributes": "<generator " + " ".join(f"a{number}='x'" for number in range(1_000)) + ">x</generator>",
    "deep elements": "<b>" * 500 + "</b>" * 500,
}


def _titled(title: str, encoding: str) -> str:
    prolog = f'<?xml version="1.0" encoding="{encoding}"?>\n' if encoding else ""
    return f'{prolog}<rss version="2.0"><channel><title>T</title><item><title>{title}</title></item></channel></rss>'


def _titles(entries: tuple[Stated, ...]) -> tuple[str, ...]:
    return tuple(entry.title for entry in entries)


def wild() -> Iterator[Sample]:
    """Yield the feeds of widespread publishing software, unchanged and with defects."""
    for name, text in documents():
        yield Sample(name, text.encode(), "application/xml")
        yield Sample(
            f"{name}, in Latin-1", text.encode("iso-8859-1", "xmlcharrefreplace"), "text/xml; charset=iso-8859-1"
        )
