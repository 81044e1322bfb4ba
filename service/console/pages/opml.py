"""Lists of subscriptions as OPML files: export and import, on pages and in the API.

An import adds a few feeds at a time for as long as one request may take; sent again, the file goes on where it ended.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from secrets import SystemRandom
from typing import Final

import msgspec
from aiohttp import hdrs, web

from service.console.auth.roles import act, look
from service.console.error_responses import shown_on
from service.console.openapi import File, Operations
from service.console.rendering import OPML_READER, STORE, render
from service.errors import LimitReached, PublisherError, UserError
from service.feeds import opml
from service.feeds.opml import OpmlSubscription
from service.feeds.urls import channel_id
from service.store import Store

LARGEST_FORM_BYTES: Final = opml.MAX_OPML_BYTES + 64 * 1024

_MEDIA_TYPE: Final = "text/x-opml"
_TAKEN = {_MEDIA_TYPE, "text/xml", "application/xml"}
_DISPOSITION = 'attachment; filename="coronet.opml"'
_LOADED_AT_ONCE = 500
_AT_ONCE = 4
_WITHIN_S = 45.0

operation = OPERATIONS = Operations()


class Imported(msgspec.Struct, frozen=True):
    """What became of a file of subscriptions.

    ``kept`` of its feeds are polled from now on. ``left`` were not looked at, for lack of time or because their
    publishers may not be asked now: send the file again. ``problems`` are the file's, by line, and those of feeds.
    """

    kept: int
    left: int
    problems: tuple[str, ...]


@operation("GET", "/channels.opml", look("channels"), answers={200: File(_MEDIA_TYPE)})
async def get_opml(request: web.Request) -> web.Response:
    """All channels that are subscribed to or listed, as OPML 2.0."""
    feeds = await _polled(request.app[STORE])
    body = await asyncio.to_thread(opml.write, "Coronet", feeds)
    return web.Response(body=body, content_type=_MEDIA_TYPE, headers={hdrs.CONTENT_DISPOSITION: _DISPOSITION})


@operation("POST", "/opml", act("channels"), 413, 415, 422, file=File(_MEDIA_TYPE), largest_bytes=opml.MAX_OPML_BYTES)
async def post_opml(request: web.Request) -> Imported:
    """Look at the feeds of an OPML file, and have them polled from now on, even without subscribers."""
    if request.content_type not in _TAKEN:
        raise web.HTTPUnsupportedMediaType(text=f"Send the file as {_MEDIA_TYPE}.")
    return await _import(request, request.read)


async def _add_page(request: web.Request, status: int, *, error: str) -> web.Response:
    return render(request, "channel_add.html", status, url="", error=error)


@shown_on(_add_page)
async def upload(request: web.Request) -> web.Response:
    """Do that with the file that a form sends, and show what became of it."""
    sent = (await request.post()).get("file")
    if not isinstance(sent, web.FileField):
        raise UserError("Choose a file first.")
    file = sent.file
    imported = await _import(request, lambda: asyncio.to_thread(file.read))
    return render(request, "channels_imported.html", imported=imported)


async def _polled(store: Store) -> list[OpmlSubscription]:
    found: list[OpmlSubscription] = []
    cursor = ""
    while True:
        channels, cursor = await store.channels.page(cursor, _LOADED_AT_ONCE)
        counts = await store.subscriptions.counts([channel.id for channel in channels])
        wanted = (channel for channel, count in zip(channels, counts, strict=True) if count or channel.listed)
        found += [OpmlSubscription(channel.url, channel.title, page=channel.kind == "page") for channel in wanted]
        if not cursor:
            return found


async def _import(request: web.Request, load: Callable[[], Awaitable[bytes]]) -> Imported:
    """Have the feeds of the OPML file that ``load`` returns polled from now on; those that are already cost no time.

    Raises :class:`UserError` for what is no OPML, and our own errors when nothing can be looked at.
    """
    outline = await request.app[OPML_READER].read(load)
    new = await _not_kept(request.app[STORE], outline.feeds)
    # Otherwise those that take long would keep the same ones waiting each time.
    SystemRandom().shuffle(new)
    kept, problems = 0, list[str]()

    async def add_some(feeds: Iterator[OpmlSubscription]) -> None:
        nonlocal kept
        for feed in feeds:
            try:
                await _keep(request.app[STORE], feed)
            except LimitReached:
                continue
            except (PublisherError, UserError) as error:
                problems.append(f"{feed.url}: {error}")
            else:
                kept += 1

    # In a task of its own: before Python 3.13 a group whose child fails may leave its task marked as cancelled.
    await asyncio.create_task(_within_time(add_some, iter(new)))
    left = len(new) - kept - len(problems)
    return Imported(len(outline.feeds) - len(new) + kept, left, (*outline.problems, *problems))


async def _within_time(
    add: Callable[[Iterator[OpmlSubscription]], Coroutine[None, None, None]], feeds: Iterator[OpmlSubscription]
) -> None:
    """Add as many feeds as one request has time for. Raises our own errors when nothing can be looked at."""
    try:
        async with asyncio.timeout(_WITHIN_S), asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(add(feeds))
    except TimeoutError:
        pass  # the rest is left
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed


async def _keep(store: Store, feed: OpmlSubscription) -> None:
    probed = await store.worker_requests.probe(feed.url, as_page=feed.page)
    if probed.channel is None:
        raise UserError(f"This is a page that names {'no feed' if probed.page else 'several feeds: add one of them'}.")
    await store.channels.set_listed(probed.channel.id, listed=True)


async def _not_kept(store: Store, feeds: Sequence[OpmlSubscription]) -> list[OpmlSubscription]:
    new: list[OpmlSubscription] = []
    for start in range(0, len(feeds), _LOADED_AT_ONCE):
        some = feeds[start : start + _LOADED_AT_ONCE]
        channels = await store.channels.get_many([channel_id(feed.url) for feed in some])
        pairs = zip(some, channels, strict=True)
        new += [feed for feed, channel in pairs if channel is None or channel.dormant or not channel.listed]
    return new
