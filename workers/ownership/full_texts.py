"""Full texts of entries: the owner of a channel adds the articles to which entries link to the channel's new version.

All messages are made from the version log as usual. If an article cannot be read in time, they have the entry's own
text.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from service.feeds.canonical_urls import channel_id, without_selector
from service.model import Change, Channel, Delta
from service.users.preferences import MAX_TEXT_CHARS

LONGEST_WAIT_S: Final = 4.0
_MAX_ARTICLES: Final = 5
"""Maximum number of articles that are read for one version. A message shows no more entries of a version in full."""
_LONG_CHARS: Final = MAX_TEXT_CHARS - 100
"""Length from which an entry's own text fills a message, so that its article is not read."""

ArticleReader = Callable[[Channel], Awaitable[str]]
"""Returns the text of the article at a page, or "" if it cannot be read in time."""


async def add_full_texts(delta: Delta, read_article: ArticleReader, *, is_private: bool) -> Delta:
    """Return ``delta`` with the full texts of its first new or edited entries, as far as their articles can be read.

    Articles may have private addresses only if that of the feed is private (``is_private``).
    """
    entries = [change.entry for change in delta.changes if not change.line and change.kind != "omission"]
    links = dict.fromkeys(entry.link for entry in entries if entry.link and len(entry.summary) < _LONG_CHARS)
    urls = {link: without_selector(link) for link in list(links)[:_MAX_ARTICLES]}
    created_s = 0.0 if is_private else delta.detected_s  # a page of an existing channel must be public
    found = await asyncio.gather(
        *(read_article(Channel(channel_id(url), url, created_s=created_s)) for url in urls.values())
    )
    texts = dict(zip(urls, found, strict=True))
    changes = tuple(_with_text(change, texts.get(change.entry.link, "")) for change in delta.changes)
    return msgspec.structs.replace(delta, changes=changes)


def _with_text(change: Change, text: str) -> Change:
    """Return ``change`` with the full text of its entry, unless the entry's own text is longer.

    The title of the entry is removed from the beginning of ``text``.
    """
    text = text.removeprefix(change.entry.title).lstrip()
    if len(text) <= len(change.entry.summary):
        return change
    return msgspec.structs.replace(change, entry=msgspec.structs.replace(change.entry, full_text=text))
