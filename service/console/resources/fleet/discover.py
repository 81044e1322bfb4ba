"""The Discover page and its API operation: popular and new public channels, by language and topic.

Both show the same channels as the chat command ``discover``.
"""

from typing import Final, cast, get_args
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from service.console.api.operations import Operations, Parameter
from service.console.app_keys import SETTINGS, STORE
from service.console.auth.permissions import read_access
from service.console.forms import redisplay_on_error
from service.console.page_rendering import render
from service.console.pagination import read_limit
from service.discovery.discover_listings import DiscoverOrder, Facet
from service.discovery.queries.query import DEFAULT_LIMIT, MAX_LIMIT, SearchHit
from service.errors import UserError
from service.model import ChannelId
from service.search.searcher import Searcher

operation = OPERATIONS = Operations()


class DiscoveredChannel(msgspec.Struct, frozen=True):
    """A public channel in a listing. ``created_s`` is the time when it was added (Unix s)."""

    channel: ChannelId
    url: str
    title: str
    language: str
    subscribers: int
    created_s: float


class Discovered(msgspec.Struct, frozen=True):
    """A listing of public channels without known problems, with languages and topics for narrowing it.

    ``languages`` and ``topics`` are the most frequent ones. ``has_more`` is true if a listing with a higher limit
    would contain more channels.
    """

    items: tuple[DiscoveredChannel, ...]
    languages: tuple[Facet, ...]
    topics: tuple[Facet, ...]
    has_more: bool


_ORDERS: Final = get_args(DiscoverOrder)
_PAGE_LIMIT: Final = 20
_MAX_VALUE_CHARS: Final = 100
_NOTHING: Final = Discovered((), (), (), has_more=False)


@operation(
    "GET",
    "/discover",
    read_access("fleet"),
    422,
    query=(
        Parameter("order", "query", "`popular`, most subscribers first (default), or `new`, newest first."),
        Parameter("language", "query", "Only channels in this language, for example `de` or `en-GB`."),
        Parameter("topic", "query", "Only channels with this tag, for example `python`."),
        Parameter("limit", "query", f"Maximum number of channels, 1 to {MAX_LIMIT}.", type="integer"),
    ),
)
async def get_discover(request: web.Request) -> Discovered:
    """List popular or new public channels, the same as the chat command `discover`. Private channels are left out."""
    return await _discover(request, DEFAULT_LIMIT)


async def _discover(request: web.Request, default_limit: int) -> Discovered:
    """Return the listing that the request's query describes. Raises :class:`UserError` if the query is invalid."""
    order = request.query.get("order") or "popular"
    if order not in _ORDERS:
        raise UserError("order: must be popular or new")
    limit = read_limit(request, default_limit)
    if limit > MAX_LIMIT:
        raise UserError(f"limit: the maximum is {MAX_LIMIT}")
    language, topic = (request.query.get(name, "").strip() for name in ("language", "topic"))
    searcher = Searcher(request.app[STORE], request.app[SETTINGS].public_from_subscribers)
    answer = await searcher.discover(cast("DiscoverOrder", order), language, topic, limit)
    return Discovered(tuple(map(_view, answer.hits)), answer.languages, answer.topics, answer.has_more)


def _view(hit: SearchHit) -> DiscoveredChannel:
    channel = hit.channel
    return DiscoveredChannel(
        channel.id, channel.url, channel.title, channel.language, hit.subscribers, channel.created_s
    )


async def _page(
    request: web.Request, status: int = 200, *, error: str = "", listing: Discovered = _NOTHING
) -> web.Response:
    query = {name: request.query.get(name, "").strip()[:_MAX_VALUE_CHARS] for name in ("order", "language", "topic")}

    def link(**changes: str) -> str:
        """Return the URL of this page with the query parameters in ``changes`` replaced."""
        chosen = {name: value for name, value in (query | changes).items() if value}
        return f"/directory/discover?{urlencode(chosen)}" if chosen else "/directory/discover"

    next_limit = MAX_LIMIT if listing.has_more and len(listing.items) < MAX_LIMIT else 0
    return render(
        request, "discover.html", status, listing=listing, query=query, link=link, next_limit=next_limit, error=error
    )


@redisplay_on_error(_page)
async def page(request: web.Request) -> web.Response:
    """Show popular or new channels."""
    return await _page(request, listing=await _discover(request, _PAGE_LIMIT))
