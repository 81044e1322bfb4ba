"""The two parts of a version, which go out apart: news, and edits of what was told earlier.

An edit can become the correction of an earlier message, news cannot. Of a page everything is news: what a
line said before is part of what is told of it.
"""

import hashlib
from collections.abc import Collection, Sequence

import msgspec

from service.feeds.articles import MARK_BYTES, marks
from service.model import Change, ChannelId, Delta, Entry

Marks = tuple[tuple[int, tuple[bytes, ...]], ...]
"""Of each article among the changes: its position, and 8-byte marks.

The first stands for the entry in its channel, so that an edit is left out where the entry was; by the others
(``articles``) other channels' copies are known.
"""

MOST_MARKED = 100
"""Articles of one version that are marked; what comes after them is told even if another channel told it."""


class Parts(msgspec.Struct, frozen=True):
    """What a version holds for its subscribers; a part is None if there is nothing in it.

    An empty part is told as well: its content is no article (a page's lines, a notice).
    """

    news: Marks | None = ()
    edits: Marks | None = None


def parts(delta: Delta) -> Parts:
    """Return what a version holds."""
    if delta.notice is not None or any(change.line for change in delta.changes):
        return Parts(news=())
    added = [(position, change) for position, change in enumerate(delta.changes) if change.kind == "addition"]
    edited = [(position, change) for position, change in enumerate(delta.changes) if is_edit(change)]
    return Parts(news=_marked(delta.channel, added), edits=_marked(delta.channel, edited))


def share(delta: Delta, *, edits: bool, left_out: Collection[int] = ()) -> Delta:
    """Return the delta with one part's changes only, without those at the positions left out."""
    kept = (
        change for position, change in enumerate(delta.changes) if is_edit(change) is edits and position not in left_out
    )
    return msgspec.structs.replace(delta, changes=tuple(kept))


def is_edit(change: Change) -> bool:
    """Say whether a change is an edit of an entry; what replaces lines of a page is none."""
    return change.kind == "replacement" and not change.line


def _marked(cid: ChannelId, changes: Sequence[tuple[int, Change]]) -> Marks | None:
    if not changes:
        return None
    return tuple(
        (position, (_own_mark(cid, change.entry), *(marks(change.entry) if nth < MOST_MARKED else ())))
        for nth, (position, change) in enumerate(changes)
    )


def _own_mark(cid: ChannelId, entry: Entry) -> bytes:
    return hashlib.blake2b(f"{cid} {entry.key}".encode("utf-8", "replace"), digest_size=MARK_BYTES).digest()
