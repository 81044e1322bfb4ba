"""What kind of document it is, judged by its first element; linear in the size of what stands before it."""

import re

_NAME = re.compile(r"<(?:[A-Za-z_][\w.-]{0,40}:)?([A-Za-z_][\w.-]{0,40})")
_NOT_BLANK = re.compile(r"[^\ufeff\0 \t\r\n\f]")
_SKIPPED = (("<!--", "-->"), ("<?", "?>"))


def root_element(text: str) -> str | None:
    """Return the first element's local name in lower case; ``{`` for JSON, "" for other text, None for nothing."""
    place = _after_blanks(text, 0)
    while text.startswith("<", place) and not _NAME.match(text, place):
        after = _end_of_markup(text, place)
        if after is None:
            return ""
        place = _after_blanks(text, after)
    if place == len(text):
        return None
    name = _NAME.match(text, place)
    if name:
        return name[1].lower()
    return "{" if text[place] == "{" else ""


def _after_blanks(text: str, place: int) -> int:
    found = _NOT_BLANK.search(text, place)
    return found.start() if found else len(text)


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
