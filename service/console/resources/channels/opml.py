"""OPML export and import of channels, on pages and in the API.

An import adds feeds for a limited time per request. Sending the same file again continues the import where it stopped.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from secrets import SystemRandom
from typing import Final

import msgspec
from aiohttp import hdrs, web

from service.console.api.operations import File, Operations
from service.console.app_keys import OPML_PARSER_CLIENT, STORE
from service.console.auth.permissions import read_access, write_access
from service.console.forms import redisplay_on_error
from service.console.page_rendering import render
from service.console.resources.channels.add_channel import add_form
from service.console.resources.channels.bulk_changes import change_each
from service.errors import LimitReached, OperationalError, UserError
from service.feeds import opml_writer
from service.feeds.canonical_urls import channel_id, shown_url
from service.feeds.opml_writer import OpmlSubscription
from service.store import Store
from service.store.client.keys import REGISTRY_BUCKETS

LARGEST_FORM_BYTES: Final = opml_writer.MAX_OPML_BYTES + 64 * 1024

_MEDIA_TYPE: Final = "text/x-opml"
_ACCEPTED_TYPES = {_MEDIA_TYPE, "text/xml", "application/xml"}
_DISPOSITION = 'attachment; filename="coronet.opml"'
_BATCH_SIZE = 500
_BUCKETS_PER_READ = 4
_TIME_LIMIT_S = 45.0

operation = OPERATIONS = Operations()


class Imported(msgspec.Struct, frozen=True):
    """The result of an import.

    ``kept`` is the number of feeds that are polled from now on. ``left`` is the number of feeds that were not
    processed, because time ran out or their publisher's request limit was reached. Sending the file again processes
    them. ``problems`` are the errors for lines in the file and for individual feeds.
    """

    kept: int
    left: int
    problems: tuple[str, ...]


@operation("GET", "/channels.opml", read_access("channels"), responses={200: File(_MEDIA_TYPE)})
async def get_opml(request: web.Request) -> web.Response:
    """Export all channels that have subscribers or are listed, as OPML 2.0."""
    feeds = await _exported_feeds(request.app[STORE])
    body = await asyncio.to_thread(opml_writer.write, "Coronet", feeds)
    return web.Response(body=body, content_type=_MEDIA_TYPE, headers={hdrs.CONTENT_DISPOSITION: _DISPOSITION})


@operation("POST", "/opml", write_access("channels"), 413, 415, 422, file=File(_MEDIA_TYPE, opml_writer.MAX_OPML_BYTES))
async def post_opml(request: web.Request) -> Imported:
    """Add the feeds of an OPML file. They are polled even without subscribers."""
    if request.content_type not in _ACCEPTED_TYPES:
        raise web.HTTPUnsupportedMediaType(text=f"Send the file as {_MEDIA_TYPE}.")
    return await _import(request, request.read)


@redisplay_on_error(add_form)
async def upload(request: web.Request) -> web.Response:
    """Import the uploaded OPML file."""
    sent = (await request.post()).get("file")
    if not isinstance(sent, web.FileField):
        raise UserError("Choose a file first.")
    file = sent.file
    imported = await _import(request, lambda: asyncio.to_thread(file.read))
    return render(request, "channels_imported.html", imported=imported)


async def _exported_feeds(store: Store) -> list[OpmlSubscription]:
    feeds: list[OpmlSubscription] = []
    for start in range(0, len(REGISTRY_BUCKETS), _BUCKETS_PER_READ):
        cids = await store.channels.ids_in_buckets(REGISTRY_BUCKETS[start : start + _BUCKETS_PER_READ])
        channels, counts = await asyncio.gather(store.channels.get_many(cids), store.channel_index.count(cids))
        found = (each for each, count in zip(channels, counts, strict=True) if each and (count or each.listed))
        feeds += [
            OpmlSubscription(shown_url(channel.url), channel.title, page=channel.kind == "page") for channel in found
        ]
    return feeds


async def _import(request: web.Request, load: Callable[[], Awaitable[bytes]]) -> Imported:
    """Import the OPML file that ``load`` returns: its feeds are polled from now on, even without subscribers.

    Raises :class:`UserError` if the file is not OPML, and :class:`OperationalError` if the workers or the store are
    unavailable.
    """
    outline = await request.app[OPML_PARSER_CLIENT].read(load)
    new = await _unlisted(request.app[STORE], outline.feeds)
    # In a fixed order, slow feeds would keep the same other feeds from being imported each time.
    SystemRandom().shuffle(new)
    store = request.app[STORE]
    kept, failed = await change_each(new, lambda feed: _add(store, feed), _TIME_LIMIT_S, fatal=OperationalError)
    problems = [f"{feed.url}: {error}" for feed, error in failed if not isinstance(error, LimitReached)]
    left = len(new) - kept - len(problems)
    return Imported(len(outline.feeds) - len(new) + kept, left, (*outline.problems, *problems))


async def _add(store: Store, feed: OpmlSubscription) -> None:
    probed = await store.worker_requests.probe(feed.url, as_page=feed.page)
    if probed.channel is None:
        raise UserError(f"This page links to {'no feed' if probed.page else 'several feeds: add one of them'}.")
    await store.channels.set_listed(probed.channel.id, listed=True)


async def _unlisted(store: Store, feeds: Sequence[OpmlSubscription]) -> list[OpmlSubscription]:
    """Return those of ``feeds`` that are not polled permanently yet.

    These are feeds without a channel, and feeds whose channel is polled only while it has subscribers.
    """
    unlisted: list[OpmlSubscription] = []
    for start in range(0, len(feeds), _BATCH_SIZE):
        batch = feeds[start : start + _BATCH_SIZE]
        channels = await store.channels.get_many([channel_id(feed.url) for feed in batch])
        pairs = zip(batch, channels, strict=True)
        unlisted += [feed for feed, channel in pairs if channel is None or channel.dormant or not channel.listed]
    return unlisted
