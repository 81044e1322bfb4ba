"""Article hashes, which recognise the same article in several of a user's feeds so that it is delivered only once.

Two entries are the same article if they share an article hash. Each article hash covers two fields, for example link
and title. One field would not be enough: different podcast episodes or comments may have the same link, and losing an
entry is worse than repeating one. Links to a site's front page and short texts are not hashed.

Article hashes are computed for each version, which is the set of changes that one poll has found. On delivery, articles
that the user has already received from another feed are left out.
"""

import hashlib
from collections.abc import Iterable

from service.feeds.entries.entry_hashes import normalize_link
from service.feeds.entries.version_parts import ArticleHashes, VersionParts, is_edit
from service.model import EXCERPT_CHARS, Change, ChannelId, Delta, Entry

ARTICLE_HASH_BYTES = 8


MAX_HASHED_ARTICLES = 100
"""Maximum number of articles of a version that get article hashes. Further articles are delivered even if they are
duplicates."""


_MIN_DISTINCTIVE_CHARS = 100


def hash_version(delta: Delta) -> VersionParts:
    """Return hashes of the new and the edited entries in ``delta``, the changes found by one poll.

    The hashes serve to recognise the same articles in other feeds. New and edited entries are hashed separately. The
    result contains no hashes if ``delta`` is a notice or describes changes to a page.
    """
    if delta.notice is not None or any(change.line for change in delta.changes):
        return VersionParts(news=())
    changes = list(enumerate(delta.changes))
    added = (each for each in changes if each[1].kind == "addition")
    edited = (each for each in changes if is_edit(each[1]))
    return VersionParts(news=_hash_changes(delta.channel, added), edits=_hash_changes(delta.channel, edited))


def article_hashes(entry: Entry) -> tuple[bytes, ...]:
    """Return up to three hashes of 8 bytes each, by which the same article is recognised in several channels.

    Each hash covers two fields: link and title, link and text, or title and text (if the text is long). A hash is
    omitted if one of its two fields is missing or not distinctive enough.
    """
    link, title, text = _distinctive_link(entry.link), _words(entry.title), _words(entry.summary[:EXCERPT_CHARS])
    pairs = (
        (b"link+title", link, title),
        (b"link+text", link, text),
        (b"title+text", title, text if len(text) >= _MIN_DISTINCTIVE_CHARS else ""),
    )
    return tuple(_hash(f"{one}\0{other}", kind) for kind, one, other in pairs if one and other)


def _distinctive_link(link: str) -> str:
    """Return the link without scheme, ``www.`` and trailing slash; "" if it leads to a site's front page.

    The fragment is kept. A link with a fragment does not count as a link to a front page.
    """
    without_fragment, _, fragment = link.partition("#")
    normalized = normalize_link(without_fragment)
    return f"{normalized}#{fragment}" if "/" in normalized or fragment else ""


def _words(text: str) -> str:
    return " ".join(text.split()).casefold()


def _hash(text: str, kind: bytes = b"") -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=ARTICLE_HASH_BYTES, person=kind).digest()


def _hash_changes(channel_id: ChannelId, changes: Iterable[tuple[int, Change]]) -> ArticleHashes | None:
    articles: list[tuple[int, tuple[bytes, ...]]] = []
    for position, change in changes:
        others = article_hashes(change.entry) if len(articles) < MAX_HASHED_ARTICLES else ()
        articles.append((position, (_hash(f"{channel_id} {change.entry.key}"), *others)))
    return tuple(articles) or None
