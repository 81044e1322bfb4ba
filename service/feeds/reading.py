"""Reading one document, whatever it is. Pure; runs in a killable child (``sandbox``)."""

from service.errors import NotAFeed
from service.feeds.discover import feed_links
from service.feeds.page import parse_page
from service.feeds.parse import parse
from service.feeds.wire import Read, Reading
from service.model import FeedLink


def read(job: Read) -> Reading:
    """Return the feed, or the page with the feeds that it names. A selector makes a page of anything.

    Raises :class:`EmptyBody`, :class:`BrokenFeed`, :class:`ListOfFeeds`, or :class:`NotAFeed` for what is neither.
    """
    document = job.document
    links: tuple[FeedLink, ...] = ()
    if not job.selector:
        try:
            return Reading(feed=parse(document.body, url=document.url, headers=document.headers))
        except NotAFeed:
            links = feed_links(document.body, url=document.url)
            if not links and not document.is_page:
                raise
    return Reading(page=parse_page(document.body, headers=document.headers, selector=job.selector), links=links)
