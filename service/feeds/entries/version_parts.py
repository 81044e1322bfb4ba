"""The division of a version (the changes that one poll has found) into news and edits, which are delivered separately.

The *news* are the new entries, the *edits* the edits of known entries. An edit may be delivered as a correction of an
earlier message; a new entry may not. Changes of a web page are always news.
"""

from collections.abc import Collection

import msgspec

from service.model import Change, Delta

ArticleHashes = tuple[tuple[int, tuple[bytes, ...]], ...]
"""The hashes of the articles in a version: pairs (position in the version's changes, hashes of 8 bytes).

The first hash of each article identifies its entry within the channel. If an entry was not delivered, its later edits
are recognised by this hash and left out. The other hashes are the article hashes, by which the same article is found in
other channels (``duplicate_articles``)."""


class VersionParts(msgspec.Struct, frozen=True):
    """Article hashes of the changes that one poll has found. The same article in two feeds has a common article hash.

    - ``news`` are the hashes of the new entries, ``edits`` those of the edited entries.
    - None means that there are no such changes.
    - An empty tuple means that the changes are not articles, for example lines of a page or a notice.
    """

    news: ArticleHashes | None = ()
    edits: ArticleHashes | None = None


def select_part(delta: Delta, *, edits: bool, left_out: Collection[int] = ()) -> Delta:
    """Return ``delta`` with only the edits of known entries if ``edits`` is true, and otherwise without these edits.

    The changes at the positions ``left_out`` in ``delta`` are left out.
    """
    selected = (
        change for position, change in enumerate(delta.changes) if is_edit(change) is edits and position not in left_out
    )
    return msgspec.structs.replace(delta, changes=tuple(selected))


def is_edit(change: Change) -> bool:
    """Return whether a change is an edit of an entry. A change of a page is never an edit."""
    return change.kind == "replacement" and not change.line
