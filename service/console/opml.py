"""Lists of subscriptions as files, in and out, for programs and for people."""

import asyncio
from typing import Final

import msgspec
from aiohttp import hdrs, web

from service.console.failures import in_plain_words, status_of
from service.console.importing import import_opml
from service.console.site import OPML_READER, STORE, render
from service.errors import CoronetError, StoreUnavailable, UserError
from service.feeds import opml
from service.feeds.opml import Subscribed
from service.store import Store

MEDIA_TYPE: Final = "text/x-opml"
LARGEST_FILE_BYTES: Final = opml.MAX_BYTES
LARGEST_FORM_BYTES: Final = opml.MAX_BYTES + 64 * 1024

_TAKEN = {MEDIA_TYPE, "text/xml", "application/xml"}
_LOADED_AT_ONCE = 500
_DISPOSITION = 'attachment; filename="coronet.opml"'


async def get_opml(request: web.Request) -> web.Response:
    """All channels that are subscribed to or listed, as OPML 2.0."""
    feeds = await _polled(request.app[STORE])
    body = await asyncio.to_thread(opml.write, "Coronet", feeds)
    return web.Response(body=body, content_type=MEDIA_TYPE, headers={hdrs.CONTENT_DISPOSITION: _DISPOSITION})


async def post_opml(request: web.Request) -> web.Response:
    """Look at the feeds of an OPML file, and have them polled from now on, even without subscribers."""
    if request.content_type not in _TAKEN:
        raise web.HTTPUnsupportedMediaType(text=f"Send the file as {MEDIA_TYPE}.")
    imported = await import_opml(request.app[STORE], request.app[OPML_READER], request.read)
    return web.Response(body=msgspec.json.encode(imported), content_type="application/json")


async def upload(request: web.Request) -> web.Response:
    """Do that with the file that a form sends, and show what became of it."""
    sent = (await request.post()).get("file")
    try:
        if not isinstance(sent, web.FileField):
            raise UserError("Choose a file first.")
        file = sent.file
        imported = await import_opml(request.app[STORE], request.app[OPML_READER], lambda: asyncio.to_thread(file.read))
    except StoreUnavailable:
        raise
    except CoronetError as error:
        return render(request, "channel_add.html", status_of(error), url="", error=in_plain_words(error))
    return render(request, "channels_imported.html", imported=imported)


async def _polled(store: Store) -> list[Subscribed]:
    found: list[Subscribed] = []
    cursor = ""
    while True:
        channels, cursor = await store.channels.page(cursor, _LOADED_AT_ONCE)
        counts = await store.subscriptions.counts([channel.id for channel in channels])
        wanted = (channel for channel, count in zip(channels, counts, strict=True) if count or channel.listed)
        found += [Subscribed(channel.url, channel.title, page=channel.kind == "page") for channel in wanted]
        if not cursor:
            return found
