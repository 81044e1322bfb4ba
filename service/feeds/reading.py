"""Reading one document, whatever it is; runs in a killable child (``sandbox``)."""

from collections.abc import Mapping

from service.errors import NotAFeed
from service.feeds.discover import feed_links
from service.feeds.parse import parse
from service.feeds.wire import Reading


def read(body: bytes, *, url: str, headers: Mapping[str, str]) -> Reading:
    """Return the feed, or the feeds that the page names.

    Raises :class:`EmptyBody`, :class:`BrokenFeed`, or :class:`NotAFeed` for what is neither.
    """
    try:
        return Reading(parse(body, url=url, headers=headers))
    except NotAFeed:
        links = feed_links(body, url=url)
        if not links:
            raise
        return Reading(None, links)
