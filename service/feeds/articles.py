"""The marks by which one article is recognised in several of a user's channels. Pure.

Two entries are one article if they have a mark in common. To lose an entry is worse than to repeat one, so
no mark is made of one trait alone: the entries of comments, of podcasts, of a forum's thread or of one
author's changelog share a link, a title or a text without being the same. And a link that leads to the front
page of a site says nothing, nor does a short text ("Read more on our site").
"""

import hashlib

from service.feeds.traces import address
from service.model import Entry

MARK_BYTES = 8
_TELLING_CHARS = 100


def marks(entry: Entry) -> tuple[bytes, ...]:
    """Return the entry's marks, 8 bytes each: of link and title, link and text, title and long text; 0 to 3."""
    link, title, text = _telling_link(entry.link), _words(entry.title), _words(entry.summary)
    pairs = (
        (b"link+title", link, title),
        (b"link+text", link, text),
        (b"title+text", title, text if len(text) >= _TELLING_CHARS else ""),
    )
    return tuple(_mark(kind, one, other) for kind, one, other in pairs if one and other)


def _telling_link(link: str) -> str:
    """Return where the link leads, with the fragment; "" for the front page of a site."""
    where, _, fragment = link.partition("#")
    place = address(where)
    return f"{place}#{fragment}" if "/" in place or fragment else ""


def _words(text: str) -> str:
    return " ".join(text.split()).casefold()


def _mark(kind: bytes, one: str, other: str) -> bytes:
    return hashlib.blake2b(f"{one}\0{other}".encode("utf-8", "replace"), digest_size=MARK_BYTES, person=kind).digest()
