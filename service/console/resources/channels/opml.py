"""OPML export and import of channels, on pages and in the API.

An import runs in the background (:mod:`service.console.opml_importer`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web

from service.console.api.operations import File, Operations
from service.console.app_keys import OPML_PARSER_CLIENT, STORE
from service.console.auth.permissions import read_access, write_access
from service.console.forms import redirect_after, redisplay_on_error
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.page_rendering import render
from service.console.resources.channels.add_channel import add_form
from service.errors import NotFound, UserError
from service.feeds import opml_writer
from service.feeds.canonical_urls import shown_url
from service.feeds.opml_import import ImportProgress, write_failures
from service.feeds.opml_writer import OpmlSubscription
from service.store import Store
from service.store.client.keys import REGISTRY_BUCKETS
from service.store.subscriptions.opml_imports import ConsoleImports

LARGEST_FORM_BYTES: Final = opml_writer.MAX_OPML_BYTES + 64 * 1024

_MEDIA_TYPE: Final = "text/x-opml"
_ACCEPTED_TYPES = {_MEDIA_TYPE, "text/xml", "application/xml"}
_DISPOSITION = 'attachment; filename="coronet.opml"'
_BUCKETS_PER_READ = 4

operation = OPERATIONS = Operations()


@operation("GET", "/channels.opml", read_access("channels"), responses={200: File(_MEDIA_TYPE)})
async def get_opml(request: web.Request) -> web.Response:
    """Export all channels that have subscribers or are listed, as OPML 2.0."""
    feeds = await _exported_feeds(request.app[STORE])
    body = await asyncio.to_thread(opml_writer.write, "Coronet", feeds)
    return web.Response(body=body, content_type=_MEDIA_TYPE, headers={hdrs.CONTENT_DISPOSITION: _DISPOSITION})


@operation(
    "POST",
    "/opml",
    write_access("channels"),
    *(413, 415, 422, 429),
    file=File(_MEDIA_TYPE, opml_writer.MAX_OPML_BYTES),
    status=HTTPStatus.ACCEPTED,
)
async def post_opml(request: web.Request) -> ImportProgress:
    """Start to add the feeds of an OPML file, in the background. They are polled even without subscribers."""
    if request.content_type not in _ACCEPTED_TYPES:
        raise web.HTTPUnsupportedMediaType(text=f"Send the file as {_MEDIA_TYPE}.")
    return await _start(request, request.read)


@operation("GET", "/imports/{import_id}", read_access("channels"), 404)
async def get_import(request: web.Request) -> ImportProgress:
    """Get the progress of an import."""
    return await _progress(request.app[STORE].console_imports, request.match_info["import_id"])


@operation("DELETE", "/imports/{import_id}", write_access("channels"), 404)
async def stop_import(request: web.Request) -> None:
    """Stop an import. The feeds that were added stay."""
    await get_import(request)
    await request.app[STORE].console_imports.stop(request.match_info["import_id"])


@operation("GET", "/imports/{import_id}/failed.csv", read_access("channels"), 404, responses={200: File("text/csv")})
async def get_failed_feeds(request: web.Request) -> web.Response:
    """Get the feeds that an import could not add: the line in the file, the URL, and the reason of each."""
    await get_import(request)
    failed = await request.app[STORE].console_imports.failed(request.match_info["import_id"])
    body = write_failures((each.line, each.url, each.fault.detail) for each in failed)
    disposition = 'attachment; filename="import-errors.csv"'
    return web.Response(body=body, content_type="text/csv", headers={hdrs.CONTENT_DISPOSITION: disposition})


async def import_page(request: web.Request) -> web.Response:
    """Show the progress of an import."""
    return render(request, "import.html", progress=await get_import(request))


stop = redirect_after(stop_import, "/imports/{import_id}")


@redisplay_on_error(add_form)
async def upload(request: web.Request) -> web.Response:
    """Start to import the uploaded OPML file."""
    sent = (await request.post()).get("file")
    if not isinstance(sent, web.FileField):
        raise UserError("Choose a file first.")
    file = sent.file
    progress = await _start(request, lambda: asyncio.to_thread(file.read))
    raise web.HTTPSeeOther(f"/imports/{progress.id}")


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


async def _start(request: web.Request, load: Callable[[], Awaitable[bytes]]) -> ImportProgress:
    """Start the import of the OPML file that ``load`` returns. Raises :class:`UserError` if the file is not OPML."""
    outline, imports = await request.app[OPML_PARSER_CLIENT].read(load), request.app[STORE].console_imports
    request[AUDIT_DETAIL] = f"{len(outline.feeds):,} feeds"
    return await _progress(imports, await imports.start(outline))


async def _progress(imports: ConsoleImports, ident: str) -> ImportProgress:
    progress = await imports.progress(ident)
    if progress is None:
        raise NotFound("There is no such import, or it ended more than a week ago.")
    return progress
