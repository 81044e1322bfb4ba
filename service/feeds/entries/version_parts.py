"""The two parts of a version, which are delivered separately: new entries, and edits of known ones. Pure.

An edit can become the correction of an earlier message, news cannot. Of a page everything is news: what a
line said before is part of what is told of it.

Entries of several channels of one person are the same article if they have a mark in common. To lose an entry is worse
than to repeat one, so no mark is made of one trait alone: the entries of comments, of podcasts, of a forum's thread or
one author's changelog share a link, a title or a text without being the same. A link to a site's front page says
nothing, nor does a short text ("Read more on our site").
"""

import hashlib
from collections.abc import Collection, Sequence

import msgspec

from service.feeds.entries.fingerprints import address
from service.model import Change, ChannelId, Delta, Entry

ARTICLE_HASH_BYTES = 8
_TELLING_CHARS = 100


def article_hashes(entry: Entry) -> tuple[bytes, ...]:
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
    return hashlib.blake2b(
        f"{one}\0{other}".encode("utf-8", "replace"), digest_size=ARTICLE_HASH_BYTES, person=kind
    ).digest()


ArticleHashes = tuple[tuple[int, tuple[bytes, ...]], ...]
"""Of each article among the changes: its position, and 8-byte marks.

The first stands for the entry in its channel, so that an edit is left out where the entry was; by the others
(``articles``) other channels' copies are known.
"""

MAX_HASHED_ARTICLES = 100
"""Articles of one version that are marked; what comes after them is told even if another channel told it."""


class VersionParts(msgspec.Struct, frozen=True):
    """What a version holds for its subscribers; a part is None if there is nothing in it.

    An empty part is told as well: its content is no article (a page's lines, a notice).
    """

    news: ArticleHashes | None = ()
    edits: ArticleHashes | None = None


def split_version(delta: Delta) -> VersionParts:
    """Return what a version holds."""
    if delta.notice is not None or any(change.line for change in delta.changes):
        return VersionParts(news=())
    added = [(position, change) for position, change in enumerate(delta.changes) if change.kind == "addition"]
    edited = [(position, change) for position, change in enumerate(delta.changes) if is_edit(change)]
    return VersionParts(news=_marked(delta.channel, added), edits=_marked(delta.channel, edited))


def select_part(delta: Delta, *, edits: bool, left_out: Collection[int] = ()) -> Delta:
    """Return the delta with one part's changes only, without those at the positions left out."""
    kept = (
        change for position, change in enumerate(delta.changes) if is_edit(change) is edits and position not in left_out
    )
    return msgspec.structs.replace(delta, changes=tuple(kept))


def is_edit(change: Change) -> bool:
    """Say whether a change is an edit of an entry; what replaces lines of a page is none."""
    return change.kind == "replacement" and not change.line


def _marked(cid: ChannelId, changes: Sequence[tuple[int, Change]]) -> ArticleHashes | None:
    if not changes:
        return None
    return tuple(
        (position, (_own_mark(cid, change.entry), *(article_hashes(change.entry) if nth < MAX_HASHED_ARTICLES else ())))
        for nth, (position, change) in enumerate(changes)
    )


def _own_mark(cid: ChannelId, entry: Entry) -> bytes:
    return hashlib.blake2b(f"{cid} {entry.key}".encode("utf-8", "replace"), digest_size=ARTICLE_HASH_BYTES).digest()
