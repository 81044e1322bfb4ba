"""Which places of a page change by themselves: clocks, counters, tokens, rotating advertisements. Pure.

A *spot* is such a place. Within a line it is some of the words that hold digits, recognised by the line's
*skeleton*, which is what remains without such words (and by the line before, where that says too little).
Else it is a number of whole lines, recognised by the skeletons of the lines before and after.

Numbers are never blanked just for being numbers, for prices are what people watch; only relative ages
("3 hours ago") mean nothing in any case. A date beside a time of day that is a spot belongs to it.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from service.feeds.pages.line_diff import Hunk

MAX_SPOTS = 500
MAX_SPOT_LINES = 30
_MAX_WORDS = 32
_KEY_BYTES = 6
_TELLING_WORDS = 2
_BLANK = "#"
_AGE = re.compile(
    r"\b(?:an?|one|\d+) ?(?:s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|weeks?|months?|y|yrs?|years?) ago\b"
    r"|\b(?:vor|il y a|hace) (?:une?[rm]?|eine[rmn]?|\d+) (?:Sekunde|Minute|Stunde|Tag|Woche|Monat|Jahr"
    r"|seconde|minute|heure|jour|semaine|mois|an|segundo|minuto|hora|día|mes|año)\w{0,2}\b"
    r"|\bjust now\b",
    re.IGNORECASE,
)
_AGE_SIGNS = ("ago", "now", "vor ", "il y a ", "hace ")
_WORD_WITH_DIGIT = re.compile(r"(?<![^ ])[^ \d]*+\d[^ ]*+")
_TIME_OF_DAY = re.compile(r"\b[0-2]?\d:[0-5]\d\b")
_DATE_WORD = re.compile(
    r"\W*(?:mon|tue|wed|thu|fri|sat|sun|jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[a-zé]{0,7}\W*"
    r"|[ap]\.?m\.?|utc|gmt",
    re.IGNORECASE,
)


class Spot(msgspec.Struct, frozen=True, array_like=True):
    """A place that changes by itself, or may: ``words`` of a line (from 0), or up to ``lines`` whole lines.

    It has changed ``times`` times in succession, from ``since_s`` to ``changed_s`` (Unix time).
    """

    words: tuple[int, ...]
    lines: int
    times: int
    since_s: float
    changed_s: float


Spots = Mapping[bytes, Spot]
"""Spots by what they are recognised by."""


class Version:
    """The lines of one version of a page, and what their places are recognised by."""

    def __init__(self, lines: Sequence[str]) -> None:
        """Take the lines as they stand on the page; all else is computed when it is needed, once."""
        self.lines = lines

    @cached_property
    def ageless(self) -> list[str]:
        """The lines without ages."""
        return [_ageless(line) for line in self.lines]

    @cached_property
    def skeletons(self) -> list[str]:
        """The lines with the words blanked that hold digits, and the date where there is a time of day."""
        return [_skeleton(line) for line in self.ageless]

    @cached_property
    def word_keys(self) -> dict[int, bytes]:
        """By their places, what the lines are recognised by that have words to blank."""
        return {place: self._word_key(place) for place, bones in enumerate(self.skeletons) if _BLANK in bones}

    def _word_key(self, place: int) -> bytes:
        bones = self.skeletons[place]
        telling = sum(not word.isdecimal() and word.isalnum() for word in bones.split(" ")) >= _TELLING_WORDS
        return _hash("words", bones, "" if telling or not place else self.skeletons[place - 1])

    def lines_key(self, start: int, end: int) -> bytes:
        """Return what a spot of the whole lines ``start:end`` is recognised by."""
        before = self.skeletons[start - 1] if start else ""
        return _hash("lines", before, self.skeletons[end] if end < len(self.lines) else "")

    def settled(self, spots: Spots) -> list[str]:
        """Return the lines as they are compared: without ages and without the words that are spots."""
        settled = list(self.ageless)
        for place, spot in self._with_spots(spots):
            settled[place] = _without(settled[place], spot.words)
        return settled

    def words_at(self, spots: Spots) -> dict[bytes, str]:
        """Return the lines that hold spots, by the spots' keys."""
        return {self.word_keys[place]: self.lines[place] for place, _ in self._with_spots(spots)}

    def _with_spots(self, spots: Spots) -> Iterator[tuple[int, Spot]]:
        if any(spot.words for spot in spots.values()):
            for place, key in self.word_keys.items():
                if key in spots:
                    yield place, spots[key]


def spots_between(old: Version, new: Version, hunks: Sequence[Hunk], *, now_s: float) -> dict[bytes, Spot]:
    """Return the places at which two versions differ, as spots that have changed once.

    At most 500, none of more than 30 lines: that would be the page, not a place on it.
    """
    found: dict[bytes, Spot] = {}
    for hunk in hunks:
        for key, words, lines in _places(old, new, hunk):
            if lines > MAX_SPOT_LINES:
                continue
            before = found.get(key)
            known = before.words if before else ()
            merged = tuple(sorted({*known, *words}))[:_MAX_WORDS]
            found[key] = Spot(merged, max(lines, before.lines if before else 0), 1, now_s, now_s)
            if len(found) == MAX_SPOTS:
                return found
    return found


def _ageless(line: str) -> str:
    lowered = line.lower()
    return _AGE.sub(_BLANK, line) if any(sign in lowered for sign in _AGE_SIGNS) else line


def _skeleton(ageless: str) -> str:
    bones = _WORD_WITH_DIGIT.sub(_BLANK, ageless)
    if ":" not in ageless or not _TIME_OF_DAY.search(ageless):
        return bones
    return " ".join(_BLANK if _DATE_WORD.fullmatch(word) else word for word in bones.split(" "))


def _places(old: Version, new: Version, hunk: Hunk) -> Iterator[tuple[bytes, tuple[int, ...], int]]:
    """Yield key, words and number of lines of each place at which the hunk's sides differ."""
    height = hunk.old_end - hunk.old_start
    if height != hunk.new_end - hunk.new_start:
        yield new.lines_key(hunk.new_start, hunk.new_end), (), max(height, hunk.new_end - hunk.new_start)
        return
    unlike = 0
    for at_old, at_new in zip(range(hunk.old_start, hunk.old_end), range(hunk.new_start, hunk.new_end), strict=True):
        bones = new.skeletons[at_new]
        if at_new not in new.word_keys or old.skeletons[at_old] != bones:
            unlike += 1
            continue
        if unlike:
            yield new.lines_key(at_new - unlike, at_new), (), unlike
        unlike = 0
        yield new.word_keys[at_new], _changed_words(old.ageless[at_old], new.ageless[at_new], bones), 0
    if unlike:
        yield new.lines_key(hunk.new_end - unlike, hunk.new_end), (), unlike


def _changed_words(old: str, new: str, bones: str) -> tuple[int, ...]:
    """Return the places of the words that differ; with a time of day, also of the date beside it."""
    old_words, words, blanked = old.split(" "), new.split(" "), bones.split(" ")
    changed = {place for place, pair in enumerate(zip(old_words, words, strict=True)) if pair[0] != pair[1]}
    for place in [place for place in changed if _TIME_OF_DAY.search(words[place])]:
        for step in (-1, 1):
            beside = place + step
            while 0 <= beside < len(words) and blanked[beside] == _BLANK:
                changed.add(beside)
                beside += step
    return tuple(changed)


def _without(line: str, places: Sequence[int]) -> str:
    return " ".join(_BLANK if place in places else word for place, word in enumerate(line.split(" ")))


def _hash(*parts: str) -> bytes:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=_KEY_BYTES).digest()
