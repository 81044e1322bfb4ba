"""What kind of document it is, judged by its first element; linear in the size of what stands before it."""

import codecs
import re

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WITHOUT_BOM = ((b"<\0", "utf-16-le"), (b"\0<", "utf-16-be"))
_NAME = re.compile(r"<(?:[A-Za-z_][\w.-]{0,40}:)?([A-Za-z_][\w.-]{0,40})")
_BLANK = re.compile("[\\ufeff\\0 \\t\\r\\n\\f]*+")
_SKIPPED = (("<!--", "-->"), ("<?", "?>"))


def root_element(body: bytes) -> str | None:
    """Return the first element's local name in lower case; ``{`` for JSON, "" for other text, None for nothing."""
    text = _text(body)
    place = _BLANK.match(text).end()
    while text.startswith("<", place) and not _NAME.match(text, place):
        after = _end_of_markup(text, place)
        if after is None:
            return ""
        place = _BLANK.match(text, after).end()
    if place == len(text):
        return None
    name = _NAME.match(text, place)
    if name:
        return name[1].lower()
    return "{" if text[place] == "{" else ""


def _text(body: bytes) -> str:
    for mark, encoding in (*_BOMS, *_WITHOUT_BOM):
        if body.startswith(mark):
            return body.decode(encoding, "replace")
    return body.decode("latin-1")


def _end_of_markup(text: str, place: int) -> int | None:
    """Return where the comment, instruction or declaration at ``place`` ends; None if it is none."""
    for opening, closing in _SKIPPED:
        if text.startswith(opening, place):
            return _end_of(text, closing, place)
    if not text.startswith("<!", place):
        return None
    end = _end_of(text, ">", place)
    if "[" in text[place:end]:  # a DOCTYPE with an internal subset
        return _end_of(text, ">", _end_of(text, "]", place))
    return end


def _end_of(text: str, closing: str, place: int) -> int:
    found = text.find(closing, place)
    return found + len(closing) if found >= 0 else len(text)
