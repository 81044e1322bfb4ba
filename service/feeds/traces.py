"""What an entry is recognised by, as short hashes. Pure.

Hashes have 48 bits: among 2,000 remembered entries, a new one is mistaken for an old one once in 10^11.
What publishers change without meaning anything is not hashed: white space, markup (image signatures,
tracking links), letter case of titles, the scheme and ``www.`` of URLs, tracking parameters.
"""

import hashlib
import re
from collections.abc import Collection
from typing import Self

import msgspec

from service.errors import BadUrl
from service.feeds.urls import canonical_url
from service.model import ParsedEntry

_TRACE_BYTES = 6
NO_TRACE = bytes(_TRACE_BYTES)
_BODY_CHARS = 4_000
_TAG = re.compile(r"<[^<>]*>")
_SCHEME = re.compile(r"^https?://(?:www\.)?", re.IGNORECASE)

Token = tuple[bytes, ...]
"""A kind, and the one or two traces that identify an entry within it."""


class Traces(msgspec.Struct, frozen=True, array_like=True):
    """The hashes; zeros stand for what the entry does not have.

    ``place`` is where it leads (its link, else its enclosure); ``body`` its content, else its title;
    ``dated`` its title and date.
    """

    id: bytes
    place: bytes
    title: bytes
    body: bytes
    dated: bytes

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to recognise it by, nor anything to show."""
        return self.id == self.place == self.body == NO_TRACE

    def may_be_one_of(self, seen: Collection[bytes]) -> bool:
        """Whether any trace that all its tokens begin with is among those ``seen``."""
        return self.id in seen or self.place in seen or self.body in seen or self.dated in seen

    def contradicts(self, other: Self) -> bool:
        """Whether, though of the same id, it leads elsewhere, is called otherwise and says something else."""
        places_differ = NO_TRACE not in (self.place, other.place) and self.place != other.place
        return places_differ and self.title != other.title and self.body != other.body

    def tokens(self, *, with_ids: bool) -> tuple[Token, ...]:
        """Return what may identify the entry, the most trustworthy first; at least one."""
        if with_ids and self.id != NO_TRACE:
            return self._id_tokens()
        return self._place_tokens() if self.place != NO_TRACE else self.text_tokens()

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


def traces_of(entry: ParsedEntry, *, homes: Collection[str]) -> Traces:
    """Return the entry's traces.

    A link to one of ``homes`` (addresses of the channel and its site) leads nowhere in particular.
    """
    place = next((at for at in map(address, (entry.link, entry.enclosure)) if at and at not in homes), "")
    title = " ".join(entry.title.split()).casefold()
    body = " ".join(_TAG.sub(" ", (entry.content or entry.summary)[:_BODY_CHARS]).split())
    date = entry.published if entry.published is not None else entry.updated
    return Traces(
        id=_hash(_SCHEME.sub("", entry.id)),
        place=_hash(place),
        title=_hash(title),
        body=_hash(body or title),
        dated=_hash(f"{date} {title}" if date is not None else ""),
    )


def pack(traces: Collection[Traces]) -> bytes:
    """Return the traces as bytes, 30 for each entry."""
    return b"".join(b"".join((t.id, t.place, t.title, t.body, t.dated)) for t in traces)


def unpack(packed: bytes) -> list[Traces]:
    """Return what :func:`pack` packed."""
    cut = [packed[start : start + _TRACE_BYTES] for start in range(0, len(packed), _TRACE_BYTES)]
    size = len(Traces.__struct_fields__)
    return [Traces(*cut[start : start + size]) for start in range(0, len(cut), size)]


def address(link: str) -> str:
    """Return what stays the same of a link however it is written: no scheme, ``www.``, or last slash."""
    try:
        return _SCHEME.sub("", canonical_url(link)).rstrip("/") if link else ""
    except BadUrl:
        return link


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=_TRACE_BYTES).digest() if text else NO_TRACE
