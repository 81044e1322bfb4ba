"""Conversion of publishers' HTML to plain text that is safe in chat messages, pages and XML streams.

The result has no markup, no characters that XML 1.0 §2.2 forbids, no bidirectional overrides, and no invisible
characters. The zero-width joiner and non-joiner are kept, because emoji and several scripts need them.
"""

import html
import re

import nh3

_MAX_HTML_CHARS = 8_000
_BLOCK = re.compile(
    r"<(?=/?[a-z])(?=/?(?:p|br|div|li|ul|ol|tr|table|h[1-6]|blockquote|pre|section|article|hr|dd|dt)\b)", re.IGNORECASE
)
_BETWEEN_WORDS = re.compile(r"<(?=/?t[dh]\b)", re.IGNORECASE)
_HIDDEN_ELEMENTS = {"script", "style", "title", "template", "noscript", "iframe", "svg", "math"}
_WITHOUT_TAGS = nh3.Cleaner(tags=set(), clean_content_tags=_HIDDEN_ELEMENTS)
_NOT_TEXT = re.compile(
    "["
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"  # controls, except those that str.split takes for white space
    "\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff"  # surrogates and noncharacters
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u3164\uffa0"  # invisible fillers
    "\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # zero width, bidi, annotations
    "\U000e0000-\U000e007f"  # tag characters, which can hide text
    "]"
)

_INVALID_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 §2.2 forbids. A single such character would end an XMPP stream and interrupt the service for
all users (guarantee I7)."""


def remove_invalid_chars(text: str) -> str:
    """Return the text without the characters that XML 1.0 forbids."""
    return _INVALID_XML.sub("", text)


def one_line(text: str, max_chars: int) -> str:
    """Return the plain text ``text``, sanitised and on one line, truncated to ``max_chars`` characters."""
    return _truncate(" ".join(_sanitize(text[: 4 * max_chars]).split()), max_chars)


def plain_text(markup: str, max_chars: int) -> str:
    """Return the sanitised text of an HTML fragment, one line per block element, truncated to ``max_chars`` characters.

    Only the fragment's first 8,000 characters are read.
    """
    # So the time is bounded.
    lines = [" ".join(line.split()) for line in _text_of(markup).splitlines()]
    return _truncate("\n".join(filter(None, lines)), max_chars)


def markup_line(markup: str, max_chars: int) -> str:
    """Return the sanitised text of an HTML fragment on one line, truncated to ``max_chars`` characters."""
    return _truncate(" ".join(_text_of(markup).split()), max_chars)


def _text_of(markup: str) -> str:
    cleaned = _sanitize(markup[:_MAX_HTML_CHARS])
    # Sanitize again: character references have become characters.
    return _sanitize(_without_tags(cleaned) if "<" in cleaned else html.unescape(cleaned))


def _sanitize(text: str) -> str:
    return text if text.isascii() and text.isprintable() else _NOT_TEXT.sub("", text)


def _without_tags(markup: str) -> str:
    bare = _WITHOUT_TAGS.clean(_BETWEEN_WORDS.sub(" <", _BLOCK.sub("\n<", markup)))
    # nh3's output has no other references (HTML, "Serialising HTML fragments"), and may have thousands of these.
    return bare.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", "\u00a0").replace("&amp;", "&")


def _truncate(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    cut = text[: max_chars - 1]
    at_a_word = cut.rsplit(None, 1)[0]
    return (at_a_word if 2 * len(at_a_word) > len(cut) else cut).rstrip() + "…"
