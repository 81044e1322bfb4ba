"""Search over all channels: the filters and sort orders of the console's lists."""

import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Annotated, Any, Final, Literal

import msgspec
from cachetools import TTLCache

from service.console.queries.channel_cache import ChannelCache
from service.console.queries.channel_rows import ChannelRow, State
from service.model import ChannelId

_ORDER_TTL_S: Final = 5.0
_SORT_KEYS: Final[Mapping[str, Callable[[ChannelCache, ChannelRow], Any]]] = {
    "id": lambda _, row: row.id,
    "title": lambda _, row: row.search_text,
    "subscribers": lambda cache, row: -cache.subscribers(row.id),
    "news": lambda _, row: row.update_interval_s,
    "version": lambda _, row: -row.version,
    "site": lambda _, row: row.site,
    "failing": lambda _, row: row.failing_since_s or inf,
    "added": lambda _, row: -row.created_s,
}
"""For each sort order, the function that returns a channel's sort key. Channels with equal keys are sorted by title."""


class ChannelQuery(msgspec.Struct, frozen=True):
    """A search for channels, and the order of the results.

    ``text`` (in a URL, ``q``) is searched for in titles and URLs, ignoring case. The other conditions are ``state``,
    ``tag`` and ``site``. A condition of "" matches every channel. If ``sort`` begins with ``-``, the order is reversed.
    """

    text: str = msgspec.field(name="q", default="")
    state: State | Literal[""] = ""
    tag: str = ""
    site: str = ""
    sort: Annotated[str, msgspec.Meta(pattern=f"^-?({'|'.join(_SORT_KEYS)})$")] = "id"


class ChannelSearch:
    """Searches the channel cache.

    To save time, each sort order is computed at most once every ``_ORDER_TTL_S`` seconds.
    """

    def __init__(self, cache: ChannelCache) -> None:
        """Create a search that reads ``cache``."""
        self._cache = cache
        self._orders = TTLCache[tuple[str, int], list[ChannelId]](len(_SORT_KEYS), _ORDER_TTL_S)

    def find(self, query: ChannelQuery) -> Sequence[ChannelId]:
        """Return the ids of all channels that match ``query``, in its sort order."""
        order = self._sorted_ids(query.sort.removeprefix("-"))
        ids: Sequence[ChannelId] = order[::-1] if query.sort.startswith("-") else order
        cache, rows, text, now_s = self._cache, self._cache.rows, query.text.casefold().strip(), time.time()
        if text:
            ids = [cid for cid in ids if text in rows[cid].search_text]
        if query.site:
            ids = [cid for cid in ids if rows[cid].site == query.site]
        if query.tag:
            ids = [cid for cid in ids if query.tag in rows[cid].tags]
        if query.state == "failing":  # few channels fail, and this is much faster than to determine the state of all
            ids = [cid for cid in ids if rows[cid].failing_since_s]
        if query.state:
            ids = [cid for cid in ids if cache.state(rows[cid], now_s) == query.state]
        return ids

    def tags(self) -> Sequence[str]:
        """Return all tags in use, sorted."""
        return sorted({tag for row in self._cache.rows.values() for tag in row.tags})

    def _sorted_ids(self, sort: str) -> list[ChannelId]:
        cache = self._cache
        order = sort, cache.membership_version
        ids = self._orders.get(order)
        if ids is None:
            start = cache.rows if sort in {"id", "title"} else self._sorted_ids("title")
            ids = sorted(start, key=lambda cid: _SORT_KEYS[sort](cache, cache.rows[cid]))
            self._orders[order] = ids
        return ids
