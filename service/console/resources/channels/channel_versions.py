"""Versions of one channel: the list of versions, and the channel's entries, read from the nearest copy."""

from typing import Final

import msgspec
from aiohttp import web

from service.console.api.operations import Operations
from service.console.app_keys import STORE
from service.console.auth.permissions import read_access
from service.console.page_rendering import render
from service.console.queries.channel_details import read_requested_channel
from service.errors import NoWorker
from service.location.content_cache import MAX_LATEST_ENTRIES
from service.model import Entry
from service.store.coordination.worker_requests import ContentSource

operation = OPERATIONS = Operations()

_VERSIONS_PER_PAGE: Final = 20


class ContentView(msgspec.Struct, frozen=True):
    """A channel's latest entries (newest first), and the place where a copy of them was found.

    ``version`` is the version of the channel that contains these entries. ``source`` is the place:

    - ``cache``: the cache of the worker that received the request.
    - ``near``: the cache of another worker. ``worker`` is its name, or "" if unknown. ``hops`` is the distance to it,
      in hops from worker to worker. It is taken from the attenuated Bloom filters.
    - ``owner``: the worker that is responsible for the channel.
    - ``store``: the database.
    - ``publisher``: there was no copy, and the content was fetched from the publisher.
    """

    version: int
    latest: tuple[Entry, ...]
    source: ContentSource
    hops: int
    worker: str


@operation("GET", "/channels/{cid}/content", read_access("channels"), 404)
async def get_content(request: web.Request) -> ContentView:
    """Get a channel's latest entries from the nearest copy, and that copy's location."""
    store, channel = request.app[STORE], await read_requested_channel(request)
    try:
        found = await store.worker_requests.content(channel.id)
    except NoWorker:
        return ContentView(channel.version, await store.channels.latest(channel.id, MAX_LATEST_ENTRIES), "store", 0, "")
    return ContentView(found.version, found.latest, found.source, found.hops, found.worker)


async def versions_page(request: web.Request) -> web.Response:
    """Show a channel's versions with their changes."""
    channel = await read_requested_channel(request)
    text = request.query.get("before", "")[:12]
    before = int(text) if text.isdecimal() else 0
    found = await request.app[STORE].channels.versions(channel.id, _VERSIONS_PER_PAGE, before)
    return render(
        request, "channel_versions.html", channel=channel, versions=found, full=len(found) == _VERSIONS_PER_PAGE
    )


async def content_page(request: web.Request) -> web.Response:
    """Show a channel's latest entries from the nearest copy of them, and where this copy was found."""
    channel = await read_requested_channel(request)
    return render(request, "channel_content.html", channel=channel, content=await get_content(request))
