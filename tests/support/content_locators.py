"""Content locators for tests."""

from service.clock import SystemClock
from service.location.content_cache import ContentCache
from service.store import Store
from workers.peers.content_locator import ContentLocator


def store_only_locator(store: Store) -> ContentLocator:
    """Return the locator of a single worker, which finds content in its cache and the store."""

    async def find_nothing(*_: object) -> None:
        return

    return ContentLocator(store.channels, ContentCache(1_000_000, 3600.0), SystemClock(), find_nothing, lambda: None)
