"""Alerts for saved searches (``watch``): queues new entries of public channels for users whose searches they match.

Users receive these entries even if they are not subscribed to the channel.
"""

import time
from collections.abc import Sequence
from typing import Final

from service.discovery.queries.saved_searches import SavedSearchId, SearchableEntry
from service.feeds.entries.duplicate_articles import hash_version
from service.feeds.parsing.html_text import one_line
from service.model import Delta
from service.store import Store
from service.store.delivery.outbox import MatchedSearch, SavedSearchHit
from service.store.directory.saved_search_store import SavedSearchMatcher

_QUERY_CHARS: Final = 120


class SavedSearchAlerts:
    """Matches new entries with all saved searches, and queues them for the owners of these searches."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._matcher = SavedSearchMatcher(store.saved_searches)

    async def queue(self, delta: Delta, positions: Sequence[int], entries: Sequence[SearchableEntry]) -> None:
        """Queue new entries for the users whose saved searches they match.

        - ``delta``: the changes of a version.
        - ``positions``: for each of ``entries``, the index of its change in ``delta``.
        - ``entries``: the new entries among these changes.
        """
        matched_positions: dict[SavedSearchId, list[int]] = {}
        for position, search_ids in zip(positions, await self._matcher.match(entries), strict=True):
            for search_id in search_ids:
                matched_positions.setdefault(search_id, []).append(position)
        hits = []
        for user_id, searches in (await self._store.saved_searches.by_owner(sorted(matched_positions))).items():
            matches = tuple(
                MatchedSearch(
                    search.number,
                    one_line(search.text, _QUERY_CHARS),
                    tuple(matched_positions[search.id]),
                )
                for search in searches
            )
            hits.append(SavedSearchHit(user_id, matches))
        if hits:
            news, changes = hash_version(delta).news or (), len(delta.changes)
            await self._store.outbox.enqueue_hits(
                delta.channel, delta.version, time.time(), hits, news=news, changes=changes
            )
