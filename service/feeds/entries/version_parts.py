"""The division of a version (the changes found by one poll) into news and edits, which are delivered separately.

The *news* are the new entries; the *edits* are the changes to known entries. Only edits may be delivered as a
correction of an earlier message. Changes to a web page are always news.
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
    """The article hashes of a version (the changes found by one poll), separately for news and for edits.

    The hashes serve to recognise the same article in another feed.

    - ``news``: the hashes of the new entries. They are an empty tuple for news without entries, such as a notice or
      the changed lines of a page. None means that the version contains no news.
    - ``edits``: the hashes of the edited entries; None if the version contains no edits.
    """

    news: ArticleHashes | None = ()
    edits: ArticleHashes | None = None


def select_part(delta: Delta, *, edits: bool, left_out: Collection[int] = ()) -> Delta:
    """Return ``delta`` with only its edits of known entries, or with only its other changes (the news).

    - ``edits``: true to keep the edits, false to keep the news.
    - ``left_out``: positions in ``delta.changes`` of changes that are removed in either case.
    """
    selected = (
        change for position, change in enumerate(delta.changes) if is_edit(change) is edits and position not in left_out
    )
    return msgspec.structs.replace(delta, changes=tuple(selected))


def is_edit(change: Change) -> bool:
    """Return whether a change is an edit of an entry. A change to a page is never an edit."""
    return change.kind == "replacement" and not change.line
