"""Short hashes of an entry's fields, by which the entry is recognised and its edits are detected.

A hash has 40 bits: among 2,000 known entries, a new one is mistaken for a known one with a probability of 2 in 10⁹.
Hashes ignore changes without a meaning: white space, markup, character references, letter case of titles, the scheme
and ``www.`` of URLs, and tracking parameters.

The *gist* of a text is its letters without numbers, URLs, words that contain a digit, punctuation and letter case. The
hash of the gist is compared to detect edits, but never identifies an entry.
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
"""A value that may identify an entry: one or two of its hashes, preceded by a tag for their fields, such as
``b"id"``."""


class EntryHashes(msgspec.Struct, frozen=True, array_like=True):
    """The hashes of an entry's fields. A hash of zeros means that the entry does not have the field.

    - ``target`` is the hash of the link, or of the enclosure if there is no link.
    - ``body`` is the hash of the content, or of the title if there is no content.
    - ``title_date`` is one hash of the title and the date.
    - ``gist`` is a hash of the text that ignores numbers, URLs, punctuation and letter case. A change of it shows that
      the text was edited.

    The last bit of ``title`` and of ``gist`` states that the text is complete: it exists and does not end in an
    ellipsis.
    """

    id: bytes
    target: bytes
    title: bytes
    body: bytes
    title_date: bytes
    gist: bytes

    @property
    def is_empty(self) -> bool:
        """Whether the entry has no id, no link or enclosure, no content and no title."""
        return self.id == self.target == self.body == NO_HASH

    def lookup_hashes(self) -> set[bytes]:
        """Return the hashes by which the entry is searched for among the known entries.

        A known entry can only be the same entry if it has at least one of these hashes.
        """
        return {self.id, self.target, self.body, self.title_date} - {NO_HASH}

    def contradicts(self, other: Self) -> bool:
        """Return whether the entries differ in title, in content, and in link or enclosure.

        The result is False if one of the entries has neither link nor enclosure. Entries that contradict each other are
        different even if they have the same id.
        """
        targets_differ = NO_HASH not in (self.target, other.target) and self.target != other.target
        return targets_differ and self.title != other.title and self.body != other.body

    def has_only_text(self, *, with_ids: bool) -> bool:
        """Return whether only title, content and date can identify the entry.

        This is so if the entry has no link, no enclosure and no usable id. ``with_ids`` states whether ids can identify
        entries of this channel.
        """
        return self.target == NO_HASH and not (with_ids and self.id != NO_HASH)

    def candidate_keys(self, *, with_ids: bool) -> tuple[CandidateKey, ...]:
        """Return the keys that may identify the entry, at least one, the most trustworthy first.

        The keys are made of the entry's id. If the entry has no id, they are made of its link or enclosure. If it has
        none of these, they are made of its text and date.

        ``with_ids`` states whether ids identify entries of this feed; if not, the id is ignored.
        """
        if self.has_only_text(with_ids=with_ids):
            return self.text_keys()
        return self._id_keys() if with_ids and self.id != NO_HASH else self._target_keys()

    def all_candidate_keys(self) -> tuple[CandidateKey, ...]:
        """Return all keys that may identify the entry: of its id, its link or enclosure, and its text and date."""
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
        """Return the key made of the entry's content and, if it has a date, the key made of its title and date."""
        return ((b"body", self.body), *(((b"dated", self.title_date),) if self.title_date != NO_HASH else ()))


def own_urls(url: str, link: str) -> list[str]:
    """Return the normalized addresses of the feed (``url``) and its site (``link``).

    A link of an entry to one of these is ignored, because it does not lead to the entry.
    """
    return sorted({normalize_link(url), normalize_link(link)})


def site_hash(url: str, link: str) -> bytes:
    """Return one hash of a feed's ``url`` and of its site's ``link``."""
    # Both determine :func:`own_urls`.
    return _hash(f"{url}\0{link}")


def fingerprint(entry: ParsedEntry, *, homes: Sequence[str]) -> bytes:
    """Return one hash of all fields that :func:`hash_entry` reads of an entry.

    Entries with the same fingerprint have the same :class:`EntryHashes`. ``homes`` are the addresses of the feed and
    its site (:func:`own_urls`).
    """
    read = (*homes, entry.id, entry.link, entry.enclosure, entry.title, _text(entry), str(_date_s(entry)))
    return _hash("\0".join(read))


def hash_entry(entry: ParsedEntry, *, homes: Collection[str]) -> EntryHashes:
    """Return the hashes of the entry's fields.

    ``homes`` are the addresses of the feed and its site (:func:`own_urls`). A link to one of these is ignored, because
    it does not lead to the entry.
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
    """Return whether two hashes of a text show that the text was edited: both texts are complete and differ.

    ``one`` and ``other`` are both title hashes or both gist hashes of :class:`EntryHashes`.
    """
    # A missing or truncated text never shows an edit, because publishers change the length of excerpts.
    return one != other and bool(one[-1] & other[-1] & 1)


def normalize_link(link: str) -> str:
    """Return the canonical URL of a link without scheme, ``www.`` and trailing slash; the link itself if invalid."""
    try:
        return _SCHEME.sub("", canonical_url(link)).rstrip("/") if link else ""
    except BadUrl:
        return link


def _text(entry: ParsedEntry) -> str:
    return (entry.content or entry.summary)[:_BODY_CHARS]


def _date_s(entry: ParsedEntry) -> float | None:
    return entry.published if entry.published is not None else entry.updated


def _gist(body: str) -> str:
    """Return the letters of ``body`` in reverse order, without URLs and without ASCII words that contain a digit."""
    # The order does not matter, because the result is only hashed; reversing it again would take time.
    without_ends = _FROM_DIGIT.sub("\0", _URL.sub(" ", body.casefold()))
    words = _BACK_FROM_DIGIT.sub(" ", without_ends[::-1])
    return "".join(_PUNCTUATION.sub("", words).split())


def _with_completeness(digest: bytes, text: str) -> bytes:
    """Return the hash ``digest`` of a text with a last bit that states whether ``text`` is complete.

    A text is complete if it is not empty and does not end in an ellipsis.
    """
    is_complete = any(digest) and not _ELLIPSIS.search(text[-_ENDING_CHARS:])
    return digest[:-1] + bytes([digest[-1] | 1 if is_complete else digest[-1] & ~1])


def _hash(text: str, size: int = HASH_BYTES) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=size).digest() if text else bytes(size)
