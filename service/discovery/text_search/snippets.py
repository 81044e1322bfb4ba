"""Snippets: one line from a text, around words of the query, with the positions of these words."""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from service.discovery.text_search.query_expansion import QueryWords
from service.discovery.word_analysis import MAX_TEXT_CHARS, words

MAX_SNIPPET_CHARS: Final = 160

_RUN = re.compile(r"[^\s/|,;:!?()\[\]{}<>\"“”„«»]+")
_LEAD_CHARS = 50
"""Characters of the text that are shown before the first hit."""
_ELLIPSIS = "…"


class Snippet(msgspec.Struct, frozen=True):
    """A part of a text as one line of at most ``MAX_SNIPPET_CHARS`` characters.

    ``hits`` are the character ranges (start, end) in ``text`` where words of the query occur. They are sorted and do
    not overlap.
    """

    text: str
    hits: tuple[tuple[int, int], ...] = ()


def best_snippet(texts: Sequence[str], asked: QueryWords) -> Snippet:
    """Return a snippet from the text in which words of the query, ``asked``, occur most often.

    If several texts are equally good, the first is used. The snippet is empty if ``texts`` is empty.
    """
    if not texts:
        return Snippet("")
    places = asked.find_beginnings(texts)
    if places:
        best = places[0] if len(places) == 1 else max(places, key=lambda place: asked.count_in(texts[place]))
        snippet = make_snippet(texts[best], asked.has)
        if snippet.hits or best == 0:
            return snippet
    return make_snippet(texts[0])


def make_snippet(text: str, is_hit: Callable[[str], bool] | None = None) -> Snippet:
    """Return a snippet of ``text``: the part that contains the most distinct words of the query.

    If the text contains no such words, the snippet is the beginning of the text.

    ``is_hit`` is a function that returns whether a folded word is one of the query's words. It is None if the text is
    known to contain none.
    """
    line = " ".join(text[:MAX_TEXT_CHARS].split())
    hits: list[tuple[int, int, str]] = []
    for run in _RUN.finditer(line) if is_hit else ():
        hit = next(filter(is_hit, _folded_words(run[0][:_MAX_RUN_CHARS])), "")
        if hit:
            start, end = _trim(line, run.start(), run.end())
            hits.append((start, end, hit))
    first, last = _window(line, hits)
    before, after = _ELLIPSIS if first else "", _ELLIPSIS if last < len(line) else ""
    shown = line[first:last].rstrip()
    shift = len(before) - first
    ranges = tuple((start + shift, min(end, last) + shift) for start, end, _ in hits if first <= start < last)
    return Snippet(before + shown + after, ranges)


def _window(line: str, hits: list[tuple[int, int, str]]) -> tuple[int, int]:
    """Return the range (start, end) of ``line`` to show: the part with the most distinct words of the query.

    ``hits`` contains a tuple (start, end, folded word) for each occurrence of a word of the query. The end of a range
    is exclusive.
    """
    if len(line) <= MAX_SNIPPET_CHARS:
        return 0, len(line)
    room = MAX_SNIPPET_CHARS - 2 * len(_ELLIPSIS)
    best, most = 0, 0
    ends = [end for _, end, _ in hits]
    for number, (start, _, _) in enumerate(hits):
        first = max(0, start - _LEAD_CHARS)
        inside = {word for _, _, word in hits[number : bisect_left(ends, first + room)]}
        if len(inside) > most:
            best, most = first, len(inside)
    first = min(best, len(line) - room)
    if first:
        space = line.find(" ", first, min((start for start, _, _ in hits if start >= first), default=first) + 1)
        first = space + 1 if space >= 0 else first
    last = min(len(line), first + room)
    if last < len(line):
        space = line.rfind(" ", first + room // 2, last + 1)
        last = space if space >= 0 else last
    return first, last


def _trim(line: str, start: int, end: int) -> tuple[int, int]:
    """Shorten the range (start, end) of ``line`` so that it does not begin or end with punctuation.

    There are exceptions: ``+`` and ``#`` are kept at the end of a word (``C++``, ``C#``), and a dot is kept at the
    start (``.net``).
    """
    while start < end and not (line[start].isalnum() or line[start] == "."):
        start += 1
    while end > start and not (line[end - 1].isalnum() or line[end - 1] in "+#"):
        end -= 1
    return start, end


_MAX_RUN_CHARS = 200


@lru_cache(20_000)
def _folded_words(run: str) -> tuple[str, ...]:
    return tuple(words(run))
