"""ContentLocator as tests want them."""

from service.clock import SystemClock
from service.location.content_cache import ContentCache
from service.store import Store
from workers.peers.content_cache import ContentLocator


def stored(store: Store) -> ContentLocator:
    """The contents of a worker that is alone."""
    return ContentLocator(store.channels, ContentCache(1_000_000, 3600.0), SystemClock())
