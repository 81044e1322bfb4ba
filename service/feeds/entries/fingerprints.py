"""What an entry is recognised by, as short hashes. Pure.

Hashes have 40 bits: among 2,000 remembered entries, a new one is mistaken for an old one once in 5 * 10^8.
What publishers change without meaning anything is not hashed: white space, markup (image signatures,
tracking links), character references, letter case of titles, the scheme and ``www.`` of URLs, tracking
parameters. The *gist*, by which a text is only compared, never recognised, has no numbers, no URLs, no
words with digits (counters, clocks, nonces), no punctuation and no letter case either.
"""

import hashlib
import html
import re
import string
from collections.abc import Collection, Sequence
from typing import Self

import msgspec

from service.errors import BadUrl
from service.feeds.urls import canonical_url
from service.model import ParsedEntry

TRACE_BYTES = 5
GIST_BYTES = 4
NO_TRACE = bytes(TRACE_BYTES)
_BODY_CHARS = 4_000
_ENDING_CHARS = 40
_ELLIPSIS = re.compile(r"…|\.\.\.")
_TAG = re.compile(r"<[^<>]*>")
_SCHEME = re.compile(r"^https?://(?:www\.)?", re.IGNORECASE)
_URL = re.compile(r"https?://[!-~]++")
_FROM_DIGIT = re.compile(r"[0-9][!-~]*+")
_BACK_FROM_DIGIT = re.compile(r"\0[!-~]*+")
# Dashes, quotation marks, ellipses, bullets, ideographic commas and full stops.
_TYPOGRAPHY = (
    "\u2013\u2014\u2018\u2019\u201a\u201c\u201d\u201e\u2039\u203a\u00ab\u00bb\u2026\u00b7\u2022\u3001\u3002\u300c\u300d"
)
_PUNCTUATION = re.compile(f"[{re.escape(string.punctuation + _TYPOGRAPHY)}]+")

Token = tuple[bytes, ...]
"""A kind, and the one or two traces that identify an entry within it."""


class Traces(msgspec.Struct, frozen=True, array_like=True):
    """The hashes; zeros stand for what the entry does not have.

    ``place`` is where it leads (its link, else its enclosure); ``body`` its content, else its title;
    ``dated`` its title and date. The last bit of ``title`` and ``gist`` says that the text is whole.
    """

    id: bytes
    place: bytes
    title: bytes
    body: bytes
    dated: bytes
    gist: bytes

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to recognise it by, nor anything to show."""
        return self.id == self.place == self.body == NO_TRACE

    def beginnings(self) -> set[bytes]:
        """Return the traces of which every token has one, except those that the entry does not have."""
        return {self.id, self.place, self.body, self.dated} - {NO_TRACE}

    def contradicts(self, other: Self) -> bool:
        """Whether, though of the same id, it leads elsewhere, is called otherwise and says something else."""
        places_differ = NO_TRACE not in (self.place, other.place) and self.place != other.place
        return places_differ and self.title != other.title and self.body != other.body

    def has_text_only(self, *, with_ids: bool) -> bool:
        """Whether nothing but title, content and date identifies it."""
        return self.place == NO_TRACE and not (with_ids and self.id != NO_TRACE)

    def tokens(self, *, with_ids: bool) -> tuple[Token, ...]:
        """Return what may identify the entry, the most trustworthy first; at least one."""
        if self.has_text_only(with_ids=with_ids):
            return self.text_tokens()
        return self._id_tokens() if with_ids and self.id != NO_TRACE else self._place_tokens()

    def every_token(self) -> tuple[Token, ...]:
        """Return what may identify the entry even after it has lost its id or its link."""
        ids = self._id_tokens() if self.id != NO_TRACE else ()
        places = self._place_tokens() if self.place != NO_TRACE else ()
        return ids + places + self.text_tokens()

    def _id_tokens(self) -> tuple[Token, ...]:
        others = (self.place, self.title, self.body)
        return (b"id", self.id), *((b"id+", self.id, other) for other in others if other != NO_TRACE)

    def _place_tokens(self) -> tuple[Token, ...]:
        others = (self.title, self.body)
        return (b"place", self.place), *((b"place+", self.place, other) for other in others if other != NO_TRACE)

    def text_tokens(self) -> tuple[Token, ...]:
        """Return what identifies an entry that has neither id nor place."""
        return ((b"body", self.body), *(((b"dated", self.dated),) if self.dated != NO_TRACE else ()))


def homes_of(url: str, link: str) -> list[str]:
    """Return the addresses of a channel and its site, to which links of entries lead nowhere in particular."""
    return sorted({address(url), address(link)})


def site_hash(url: str, link: str) -> bytes:
    """Return one hash of what the homes follow from."""
    return _hash(f"{url}\0{link}")


def fingerprint(entry: ParsedEntry, *, homes: Sequence[str]) -> bytes:
    """Return one hash of all that :func:`traces_of` reads: what has it already needs no new traces."""
    read = (*homes, entry.id, entry.link, entry.enclosure, entry.title, _text(entry), str(_date_s(entry)))
    return _hash("\0".join(read))


def traces_of(entry: ParsedEntry, *, homes: Collection[str]) -> Traces:
    """Return the entry's traces.

    A link to one of ``homes`` leads nowhere in particular.
    """
    place = next((at for at in map(address, (entry.link, entry.enclosure)) if at and at not in homes), "")
    title = " ".join(entry.title.split()).casefold()
    body = " ".join(html.unescape(_TAG.sub(" ", _text(entry))).split())
    date_s = _date_s(entry)
    return Traces(
        id=_hash(_SCHEME.sub("", entry.id)),
        place=_hash(place),
        title=_marked(_hash(title), title),
        body=_hash(body or title),
        dated=_hash(f"{date_s} {title}" if date_s is not None else ""),
        gist=_marked(_hash(_gist(body), GIST_BYTES), body),
    )


def differ(one: bytes, other: bytes) -> bool:
    """Say whether two titles, or two gists, are of texts that can be compared, and say different things.

    A text that is missing or cut off cannot: publishers change the length of excerpts.
    """
    return one != other and bool(one[-1] & other[-1] & 1)


def address(link: str) -> str:
    """Return what stays the same of a link however it is written: no scheme, ``www.``, or last slash."""
    try:
        return _SCHEME.sub("", canonical_url(link)).rstrip("/") if link else ""
    except BadUrl:
        return link


def _text(entry: ParsedEntry) -> str:
    return (entry.content or entry.summary)[:_BODY_CHARS]


def _date_s(entry: ParsedEntry) -> float | None:
    return entry.published if entry.published is not None else entry.updated


def _gist(body: str) -> str:
    """Return the letters of all that is neither a URL nor an ASCII word with a digit; backwards, which is faster."""
    without_ends = _FROM_DIGIT.sub("\0", _URL.sub(" ", body.casefold()))
    words = _BACK_FROM_DIGIT.sub(" ", without_ends[::-1])
    return "".join(_PUNCTUATION.sub("", words).split())


def _marked(trace: bytes, text: str) -> bytes:
    """Return the trace of ``text`` with the last bit set if the text is there, and whole."""
    is_whole = any(trace) and not _ELLIPSIS.search(text[-_ENDING_CHARS:])
    return trace[:-1] + bytes([trace[-1] | 1 if is_whole else trace[-1] & ~1])


def _hash(text: str, size: int = TRACE_BYTES) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=size).digest() if text else bytes(size)
