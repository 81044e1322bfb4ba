"""Detects a document's character encoding and decodes the document, both in linear time.

As RFC 7303 §3 requires, the byte order mark takes precedence over the ``Content-Type`` header, and the header takes
precedence over the XML declaration.

There is one deviation from the RFC. A document that is valid UTF-8 is decoded as UTF-8 whatever encoding is declared,
because many servers declare the same default encoding for all files. A declared encoding in which the document cannot
be decoded is ignored.
"""

import codecs
import contextlib
import re

_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",  # before UTF-16's, which begins alike
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
} | {
    first.encode(encoding): encoding
    for encoding in ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")
    for first in "<{"
}
_IN_HEADER = re.compile(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_IN_PROLOG = re.compile(rb"<\?xml[^>]{1,200}?encoding\s*=\s*[\"']([\w.:-]{1,40})")
_PROLOG_BYTES = 1024

# The supersets that browsers use for these names (WHATWG Encoding §4.2), because publishers mean these.
_SUPERSETS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
_NOT_CHARSETS = {"idna", "punycode", "unicode_escape", "raw_unicode_escape"}
_DEFAULT = "cp1252"


def decode_document(body: bytes, content_type: str) -> str:
    """Return the document's text without its byte order mark; bytes that cannot be decoded become U+FFFD.

    ``content_type`` is the value of the response's ``Content-Type`` header, or "" if there is none.
    """
    mark = next((mark for mark in _MARKS if body.startswith(mark)), None)
    if mark:
        return body.decode(_MARKS[mark], "replace").removeprefix("\ufeff")
    if not body.isascii():
        with contextlib.suppress(UnicodeError):
            return body.decode()
    declared = _declared(body, content_type)
    others = [charset for charset in declared if not charset.startswith("utf")]
    if (not others or "utf-8" in declared) and not body.isascii() and _is_mostly_utf8(body):
        return body.decode("utf-8", "replace")
    for charset in others:
        with contextlib.suppress(UnicodeError):
            return body.decode(charset)
    return body.decode(others[0] if others else _DEFAULT, "replace")


def _declared(body: bytes, content_type: str) -> list[str]:
    """Return the supported encodings that a document declares, at most two.

    The encoding in the ``Content-Type`` header comes first, followed by the one in the XML declaration.
    """
    in_header, in_prolog = _IN_HEADER.search(content_type), _IN_PROLOG.search(body, 0, _PROLOG_BYTES)
    names = [in_header[1]] if in_header else []
    names += [in_prolog[1].decode()] if in_prolog else []
    return [charset for charset in map(_charset, names) if charset]


def _charset(name: str) -> str:
    try:
        found = codecs.lookup(name).name
        b" ".decode(found)
    except (LookupError, UnicodeError):  # unknown, or not an encoding of text as bytes
        return ""
    return "" if found in _NOT_CHARSETS else _SUPERSETS.get(found, found)


def _is_mostly_utf8(body: bytes) -> bool:
    """Return whether most non-ASCII bytes of ``body`` are valid UTF-8."""
    # A single truncated character therefore does not change the detected encoding.
    text = body.decode("utf-8", "replace")
    return 3 * text.count("\ufffd") < len(text) - len(text.encode("ascii", "ignore"))
