"""Short hashes of an entry's fields, used to recognise the entry and to detect its edits.

Hashes ignore differences that do not change the meaning: white space, markup, character references, the letter case of
titles, the scheme and ``www.`` of URLs, and tracking parameters.

The *gist* of a text is what remains after removing URLs, numbers, words that contain a digit, punctuation and
differences in letter case. The hash of the gist is compared to detect edits, but is never used to identify an entry.

The hashes that identify entries are 40 bits long. The probability that a new entry is mistaken for one of 2,000 known
entries is 2 in 10⁹.
"""

import hashlib
import html
import re
import string
from collections.abc import Collection, Sequence
from typing import Self

import msgspec

from service.errors import BadUrl
from service.feeds.canonical_urls import canonical_url
from service.model import ParsedEntry

HASH_BYTES = 5
GIST_BYTES = 4
NO_HASH = bytes(HASH_BYTES)
"""The hash of a field that the entry does not have."""
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

CandidateKey = tuple[bytes, ...]
"""A value that may identify an entry: a tag that states the hashed fields, such as ``b"id"``, followed by one or two of
the entry's hashes."""


class EntryHashes(msgspec.Struct, frozen=True, array_like=True):
    """The hashes of an entry's fields. A hash consists of zero bytes if the entry does not have the field.

    - ``id`` and ``title`` are the hashes of the fields with these names.
    - ``target`` is the hash of the link, or of the enclosure if there is no link.
    - ``body`` is the hash of the content, or of the title if there is no content.
    - ``title_date`` is a single hash of the title together with the date.
    - ``gist`` is a hash of the content that ignores numbers, URLs, punctuation and letter case. If it changes, the
      content was edited.

    The last bit of ``title`` and of ``gist`` is set if the hashed text is complete: it is not empty and does not end in
    an ellipsis.
    """

    id: bytes
    target: bytes
    title: bytes
    body: bytes
    title_date: bytes
    gist: bytes

    @property
    def is_empty(self) -> bool:
        """Whether the entry is empty, that is, has no id, link, enclosure, content or title."""
        return self.id == self.target == self.body == NO_HASH

    def lookup_hashes(self) -> set[bytes]:
        """Return the hashes by which to look up this entry in the table of known entries.

        A known entry that has none of these hashes cannot be the same entry.
        """
        return {self.id, self.target, self.body, self.title_date} - {NO_HASH}

    def contradicts(self, other: Self) -> bool:
        """Return whether title, content and target (link or enclosure) all differ between this entry and ``other``.

        Such entries are different entries even if they have the same id. The result is False if one of the entries has
        no target.
        """
        targets_differ = NO_HASH not in (self.target, other.target) and self.target != other.target
        return targets_differ and self.title != other.title and self.body != other.body

    def has_only_text(self, *, with_ids: bool) -> bool:
        """Return whether the entry can be identified only by its title, content and date.

        This is the case if it has no link, no enclosure and no usable id. ``with_ids`` is true if ids can identify the
        entries of this feed; otherwise no id is usable.
        """
        return self.target == NO_HASH and not (with_ids and self.id != NO_HASH)

    def candidate_keys(self, *, with_ids: bool) -> tuple[CandidateKey, ...]:
        """Return the keys that may identify the entry, the most trustworthy first. There is always at least one.

        The keys are made from the entry's id. If it has no id, they are made from its link or enclosure. If it has
        neither, they are made from its text and date.

        ``with_ids`` is true if ids can identify the entries of this feed. Otherwise the id is ignored.
        """
        if self.has_only_text(with_ids=with_ids):
            return self.text_keys()
        return self._id_keys() if with_ids and self.id != NO_HASH else self._target_keys()

    def all_candidate_keys(self) -> tuple[CandidateKey, ...]:
        """Return all keys that may identify the entry.

        They are made from its id, from its link or enclosure, and from its text and date.
        """
        # Known entries are found by all of these keys, because the entry in the new document may lack the id or the
        # target.
        ids = self._id_keys() if self.id != NO_HASH else ()
        targets = self._target_keys() if self.target != NO_HASH else ()
        return ids + targets + self.text_keys()

    def _id_keys(self) -> tuple[CandidateKey, ...]:
        others = (self.target, self.title, self.body)
        return (b"id", self.id), *((b"id+", self.id, other) for other in others if other != NO_HASH)

    def _target_keys(self) -> tuple[CandidateKey, ...]:
        # The literals "place" and "place+" are part of the keys of entries that are stored and delivered.
        others = (self.title, self.body)
        return (b"place", self.target), *((b"place+", self.target, other) for other in others if other != NO_HASH)

    def text_keys(self) -> tuple[CandidateKey, ...]:
        """Return the keys made from the entry's text: one from its content, and one from its title and date.

        If the entry has no date, only the first key is returned.
        """
        return ((b"body", self.body), *(((b"dated", self.title_date),) if self.title_date != NO_HASH else ()))


def own_urls(url: str, link: str) -> list[str]:
    """Return the normalised URLs of a feed (``url``) and of its site (``link``).

    An entry's link to one of these URLs is ignored, because it does not lead to the entry itself.
    """
    return sorted({normalize_link(url), normalize_link(link)})


def site_hash(url: str, link: str) -> bytes:
    """Return a single hash of a feed's ``url`` and its site's ``link``."""
    # Both determine :func:`own_urls`.
    return _hash(f"{url}\0{link}")


def fingerprint(entry: ParsedEntry, *, homes: Sequence[str]) -> bytes:
    """Return a single hash of all the fields of an entry that :func:`hash_entry` reads.

    Entries with the same fingerprint have the same :class:`EntryHashes`. ``homes`` are the URLs of the feed and its
    site, as returned by :func:`own_urls`.
    """
    read = (*homes, entry.id, entry.link, entry.enclosure, entry.title, _text(entry), str(_date_s(entry)))
    return _hash("\0".join(read))


def hash_entry(entry: ParsedEntry, *, homes: Collection[str]) -> EntryHashes:
    """Return the hashes of the entry's fields.

    ``homes`` are the URLs of the feed and its site, as returned by :func:`own_urls`. A link to one of these is ignored,
    because it does not lead to the entry itself.
    """
    target = next((at for at in map(normalize_link, (entry.link, entry.enclosure)) if at and at not in homes), "")
    title = " ".join(entry.title.split()).casefold()
    body = " ".join(html.unescape(_TAG.sub(" ", _text(entry))).split())
    date_s = _date_s(entry)
    return EntryHashes(
        id=_hash(_SCHEME.sub("", entry.id)),
        target=_hash(target),
        title=_with_completeness(_hash(title), title),
        body=_hash(body or title),
        title_date=_hash(f"{date_s} {title}" if date_s is not None else ""),
        gist=_with_completeness(_hash(_gist(body), GIST_BYTES), body),
    )


def is_edited(one: bytes, other: bytes) -> bool:
    """Return whether two hashes show that a text was edited.

    This is the case if the hashes differ and both texts are complete. ``one`` and ``other`` are the hashes before and
    after the possible edit: either two ``title`` hashes or two ``gist`` hashes of :class:`EntryHashes`.
    """
    # A missing or truncated text never shows an edit, because publishers change the length of excerpts.
    return one != other and bool(one[-1] & other[-1] & 1)


def normalize_link(link: str) -> str:
    """Return the link's canonical URL, stripped of its scheme, ``www.`` and trailing slash.

    An invalid link is returned unchanged.
    """
    try:
        return _SCHEME.sub("", canonical_url(link)).rstrip("/") if link else ""
    except BadUrl:
        return link


def _text(entry: ParsedEntry) -> str:
    return (entry.content or entry.summary)[:_BODY_CHARS]


def _date_s(entry: ParsedEntry) -> float | None:
    return entry.published if entry.published is not None else entry.updated


def _gist(body: str) -> str:
    """Return the part of ``body`` that is compared to detect edits. The order of its characters is reversed.

    URLs, ASCII words that contain a digit, punctuation, white space and differences in letter case are removed. The
    reversed order does not matter, because the result is only hashed.
    """
    # The order does not matter, because the result is only hashed; reversing it again would take time.
    without_ends = _FROM_DIGIT.sub("\0", _URL.sub(" ", body.casefold()))
    words = _BACK_FROM_DIGIT.sub(" ", without_ends[::-1])
    return "".join(_PUNCTUATION.sub("", words).split())


def _with_completeness(digest: bytes, text: str) -> bytes:
    """Return ``digest``, the hash of ``text``, with its last bit set if and only if ``text`` is complete.

    A text is complete if it is not empty and does not end in an ellipsis.
    """
    is_complete = any(digest) and not _ELLIPSIS.search(text[-_ENDING_CHARS:])
    return digest[:-1] + bytes([digest[-1] | 1 if is_complete else digest[-1] & ~1])


def _hash(text: str, size: int = HASH_BYTES) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=size).digest() if text else bytes(size)
