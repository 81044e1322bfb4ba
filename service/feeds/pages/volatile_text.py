"""Volatile regions of a page, which change by themselves: clocks, counters, tokens, advertisements.

- A *region* is either some words with digits within a line, or some whole lines.
- The *skeleton* of a line is the line without words that contain a digit.
- A region of words is recognised by the skeleton of its line. If this skeleton is too short, that of the previous line
  is also used.
- A region of lines is recognised by the skeletons of the lines before and after it.

Numbers are not regarded as volatile in general, because people watch prices. Only relative ages ("3 hours ago") are
always ignored. A date next to a volatile time of day is also volatile.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from service.feeds.pages.page_diff import Hunk

MAX_REGIONS = 500
MAX_REGION_LINES = 30
_MAX_WORDS = 32
_KEY_BYTES = 6
_DISTINCTIVE_WORDS = 2
_BLANK = "#"
_AGE = re.compile(
    r"\b(?:an?|one|\d+) ?(?:s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|weeks?|months?|y|yrs?|years?) ago\b"
    r"|\b(?:vor|il y a|hace|há) (?:un[ae]?|uma?|eine[rmn]?|\d+) (?:Sekunde|Minute|Stunde|Tag|Woche|Monat|Jahr"
    r"|seconde|minute|heure|jour|semaine|mois|an|segundo|minuto|hora|día|dia|semana|mes|mês|año|ano)\w{0,2}\b"
    r"|\b(?:\d+ |een |uma? |una? |un['\u2019])\w{2,9} (?:atrás|fa|geleden|temu)\b"
    r"|\b(?:sekundę|minutę|godzinę|tydzień|miesiąc|rok) temu\b"
    r"|\bjust now\b",
    re.IGNORECASE,
)
_AGE_MARKERS = ("ago", "now", "vor ", "il y a ", "hace ", "há ", " atrás", " fa", " geleden", " temu")
_WORD_WITH_DIGIT = re.compile(r"(?<![^ ])[^ \d]*+\d[^ ]*+")
_TIME_OF_DAY = re.compile(r"\b[0-2]?\d:[0-5]\d\b")
_DATE_WORD = re.compile(
    r"\W*(?:mon|tue|wed|thu|fri|sat|sun|jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[a-zé]{0,7}\W*"
    r"|[ap]\.?m\.?|utc|gmt",
    re.IGNORECASE,
)


class VolatileRegion(msgspec.Struct, frozen=True, array_like=True):
    """A part of a page that changes by itself, or may do so: some words of a line, or some whole lines.

    - ``words`` are the indexes of the words within their line; empty for a region of whole lines.
    - ``lines`` is the largest number of lines that the region has had so far; 0 for a region of words.
    - ``times`` is how many times in succession the region has changed.
    - ``since_s`` and ``changed_s`` are the Unix times of the first and the last of these changes.
    """

    words: tuple[int, ...]
    lines: int
    times: int
    since_s: float
    changed_s: float


VolatileRegions = Mapping[bytes, VolatileRegion]
"""Maps keys to regions. A key is a hash of the skeletons that identify a region. A skeleton is a line without the words
that contain a digit."""


class PageVersion:
    """One version of a page: its lines, and the keys by which parts of the page are recognised in other versions.

    - A region is a part of the page: some words of a line, or some whole lines.
    - The skeleton of a line is the line without the words that contain a digit.
    - The key of a region of words is a hash of the skeleton of its line and, if this is short, of the previous line.
    - The key of a region of whole lines is a hash of the skeletons of the lines before and after it.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines

    @cached_property
    def lines_without_ages(self) -> list[str]:
        """The lines, with ``#`` in place of each relative age such as "3 hours ago"."""
        return [_without_ages(line) for line in self.lines]

    @cached_property
    def skeletons(self) -> list[str]:
        """The skeletons of the lines: each line with ``#`` in place of every word that contains a digit.

        In a line with a time of day, names of days and months, "am", "pm" and time zones are replaced as well.
        """
        return [_skeleton(line) for line in self.lines_without_ages]

    @cached_property
    def word_keys(self) -> dict[int, bytes]:
        """Maps the index of a line to the key of the region that consists of the line's words with digits.

        The key identifies this region in other versions of the page. Lines without such words are left out.
        """
        return {index: self._word_key(index) for index, skeleton in enumerate(self.skeletons) if _BLANK in skeleton}

    def _word_key(self, index: int) -> bytes:
        skeleton = self.skeletons[index]
        is_distinctive = (
            sum(not word.isdecimal() and word.isalnum() for word in skeleton.split(" ")) >= _DISTINCTIVE_WORDS
        )
        return _hash("words", skeleton, "" if is_distinctive or not index else self.skeletons[index - 1])

    def lines_key(self, start: int, end: int) -> bytes:
        """Return the key of the region that consists of the whole lines ``start:end``."""
        before = self.skeletons[start - 1] if start else ""
        return _hash("lines", before, self.skeletons[end] if end < len(self.lines) else "")

    def stable_lines(self, regions: VolatileRegions) -> list[str]:
        """Return the lines to compare, without the parts that change by themselves.

        ``#`` stands in place of relative ages ("3 hours ago") and of the words in ``regions``.
        """
        # Regions of whole lines are kept.
        stable_lines = list(self.lines_without_ages)
        for index, region in self._find_regions(regions):
            stable_lines[index] = _blank_words(stable_lines[index], region.words)
        return stable_lines

    def lines_with_regions(self, regions: VolatileRegions) -> dict[bytes, str]:
        """Map the key of each region in ``regions`` to the line of this page that contains the region.

        Only regions that consist of words of a line are included, not regions of whole lines. Regions that are not
        on this page are left out.
        """
        return {self.word_keys[index]: self.lines[index] for index, _ in self._find_regions(regions)}

    def _find_regions(self, regions: VolatileRegions) -> Iterator[tuple[int, VolatileRegion]]:
        if any(region.words for region in regions.values()):
            for index, key in self.word_keys.items():
                if key in regions:
                    yield index, regions[key]


def changed_regions(
    old: PageVersion, new: PageVersion, hunks: Sequence[Hunk], *, now_s: float
) -> dict[bytes, VolatileRegion]:
    """Return the regions of a page that differ between its versions ``old`` and ``new``, each under its key.

    A region is some words of a line, or some whole lines. Its key is a hash that identifies it in every version of
    the page. At most 500 regions are returned. Regions of more than 30 lines are left out.

    - ``hunks``: the differences between the lines of the two versions.
    - ``now_s``: the Unix time of the change. It is stored in each region, together with a change count of 1.
    """
    # Regions of more than 30 lines would be most of the page.
    found: dict[bytes, VolatileRegion] = {}
    for hunk in hunks:
        for key, words, lines in _differing_regions(old, new, hunk):
            if lines > MAX_REGION_LINES:
                continue
            before = found.get(key, VolatileRegion((), 0, 0, now_s, now_s))
            merged = tuple(sorted({*before.words, *words}))[:_MAX_WORDS]
            found[key] = VolatileRegion(merged, max(lines, before.lines), 1, now_s, now_s)
            if len(found) == MAX_REGIONS:
                return found
    return found


def _without_ages(line: str) -> str:
    lowered = line.lower()
    return _AGE.sub(_BLANK, line) if any(sign in lowered for sign in _AGE_MARKERS) else line


def _skeleton(line: str) -> str:
    skeleton = _WORD_WITH_DIGIT.sub(_BLANK, line)
    if ":" not in line or not _TIME_OF_DAY.search(line):
        return skeleton
    return " ".join(_BLANK if _DATE_WORD.fullmatch(word) else word for word in skeleton.split(" "))


def _differing_regions(old: PageVersion, new: PageVersion, hunk: Hunk) -> Iterator[tuple[bytes, tuple[int, ...], int]]:
    """Yield the regions in which the old and the new lines of ``hunk`` differ, as tuples.

    A region is some words of a line, or some whole lines:

    - For words of a line, the tuple is (key of the region, indexes of the words that differ, 0).
    - For whole lines, the tuple is (key of the region, an empty tuple, number of lines).
    """
    height = hunk.old_end - hunk.old_start
    if height != hunk.new_end - hunk.new_start:
        yield new.lines_key(hunk.new_start, hunk.new_end), (), max(height, hunk.new_end - hunk.new_start)
        return
    unmatched = 0
    for at_old, at_new in zip(range(hunk.old_start, hunk.old_end), range(hunk.new_start, hunk.new_end), strict=True):
        skeleton = new.skeletons[at_new]
        if at_new not in new.word_keys or old.skeletons[at_old] != skeleton:
            unmatched += 1
            continue
        if unmatched:
            yield new.lines_key(at_new - unmatched, at_new), (), unmatched
        unmatched = 0
        yield (
            new.word_keys[at_new],
            _changed_words(old.lines_without_ages[at_old], new.lines_without_ages[at_new], skeleton),
            0,
        )
    if unmatched:
        yield new.lines_key(hunk.new_end - unmatched, hunk.new_end), (), unmatched


def _changed_words(old: str, new: str, skeleton: str) -> tuple[int, ...]:
    """Return the indexes of the words that differ between the lines ``old`` and ``new``.

    ``skeleton`` must be the skeleton of both lines: the line with ``#`` in place of each word that contains a digit.
    In a line with a time of day, words of dates, such as "Mon" and "May", are also replaced.

    If one of the words that differ is a time of day, the result also includes the words directly before and after it
    that are ``#`` in the skeleton. These are usually parts of the date.
    """
    old_words, words, blanked = old.split(" "), new.split(" "), skeleton.split(" ")
    changed = {index for index, pair in enumerate(zip(old_words, words, strict=True)) if pair[0] != pair[1]}
    for index in [index for index in changed if _TIME_OF_DAY.search(words[index])]:
        for step in (-1, 1):
            beside = index + step
            while 0 <= beside < len(words) and blanked[beside] == _BLANK:
                changed.add(beside)
                beside += step
    return tuple(changed)


def _blank_words(line: str, indexes: Sequence[int]) -> str:
    return " ".join(_BLANK if index in indexes else word for index, word in enumerate(line.split(" ")))


def _hash(*parts: str) -> bytes:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=_KEY_BYTES).digest()
