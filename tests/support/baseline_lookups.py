"""Lookups of baselines for tests."""

from service.clock import SystemClock
from service.location.content_cache import ContentCache
from service.store import Store
from workers.peers.baseline_lookup import BaselineLookup


def store_only_lookup(store: Store) -> BaselineLookup:
    """Return the lookup of a single worker, which finds content in its cache and the store."""

    async def find_nothing(*_: object) -> None:
        return

    return BaselineLookup(store.channels, ContentCache(1_000_000, 3600.0), SystemClock(), find_nothing, lambda: None)
