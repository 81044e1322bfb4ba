"""The Channels page and its API operation: search, sort and page through all channels, and change selected ones."""

from collections.abc import Mapping
from typing import Final, cast, get_args
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from service.console.api.operations import CURSOR, LIMIT, Operations, Parameter
from service.console.app_keys import CHANNEL_CACHE, CHANNEL_SEARCH, STORE
from service.console.auth.permissions import read_access
from service.console.formatting import parse_duration
from service.console.forms import convert_fields, read_form, redisplay_on_error
from service.console.page_rendering import render
from service.console.pagination import PAGE_SIZE, find_page_start, next_cursor, read_limit, read_page_number
from service.console.queries.channel_details import ChannelPage, read_channel_views
from service.console.queries.channel_rows import State
from service.console.queries.channel_search import ChannelQuery
from service.console.resources.channels.bulk_changes import Action, BulkChange, BulkResult, post_bulk
from service.errors import UserError

_MAX_QUERY_CHARS: Final = 200
_MAX_SELECTED: Final = 5_000
_LISTED_IN_CONFIRMATION: Final = 10


operation = OPERATIONS = Operations()


@operation(
    "GET",
    "/channels",
    read_access("channels"),
    422,
    query=(
        Parameter("q", "query", "Only channels whose title or URL contains this text."),
        Parameter(
            "state",
            "query",
            "Only channels in this state: `polled`, `failing`, `idle`, `paused`, `blocked` or `moved`.",
        ),
        Parameter("tag", "query", "Only channels with this tag."),
        Parameter("site", "query", "Only channels on this site (registrable domain)."),
        Parameter(
            "sort",
            "query",
            "Sort order: `id` (the default), `title`, `subscribers`, `news`, `version`, `site`, `failing` or `added`. "
            "A leading `-` reverses it.",
        ),
        CURSOR,
        LIMIT,
    ),
)
async def get_channels(request: web.Request) -> ChannelPage:
    """List channels."""
    app, query, count = request.app, _parse_query(request.query), read_limit(request)
    await app[CHANNEL_CACHE].refresh()
    ids = app[CHANNEL_SEARCH].find(query)
    start = find_page_start(ids, request.query.get("cursor", ""))
    views = await read_channel_views(app[STORE], ids[start : start + count])
    return ChannelPage(views, next_cursor(ids, start + count), len(ids))


async def page(
    request: web.Request, status: int = 200, *, error: str = "", result: BulkResult | None = None
) -> web.Response:
    """Show the list of channels.

    ``result`` is the result of a change to the selected channels. ``error`` is the message to show if a change failed.
    """
    fields = await read_form(request)
    query, cache = _parse_query({"sort": "title", **fields}), request.app[CHANNEL_CACHE]
    await cache.refresh()
    ids = request.app[CHANNEL_SEARCH].find(query)
    number, pages = read_page_number(fields, len(ids), PAGE_SIZE)
    page_ids = ids[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]
    return render(
        request,
        "channels.html",
        status,
        channels=await read_channel_views(request.app[STORE], page_ids),
        query=query,
        fields=_query_fields(query) | {"page": str(number)},
        link=lambda **changes: _link(query, **changes),
        states=get_args(State),
        tags=request.app[CHANNEL_SEARCH].tags(),
        total=len(ids),
        total_unfiltered=len(cache.rows),
        first=(number - 1) * PAGE_SIZE + 1,
        number=number,
        pages=pages,
        intervals={cid: cache.rows[cid].update_interval_s for cid in page_ids},
        action=fields.get("action"),
        result=result,
        error=error,
    )


@redisplay_on_error(page)
async def change_selected(request: web.Request) -> web.Response:
    """Change the selected channels: those that are checked, or all that match the list's search."""
    form, store, cache = await read_form(request), request.app[STORE], request.app[CHANNEL_CACHE]
    action, query = form.get("action"), _parse_query(form)
    if action not in get_args(Action):
        raise UserError("Choose an action for the channels.")
    await cache.refresh()
    if selects_all := form.get("all") == "1":
        ids = request.app[CHANNEL_SEARCH].find(query)[:_MAX_SELECTED]
    else:
        checked = map(str, (await request.post()).getall("channel", []))
        ids = [cid for cid in checked if cid in cache.rows][:_MAX_SELECTED]
    if not ids:
        raise UserError("Select some channels first.")
    if action == "remove" and form.get("sure") != "1":
        listed = await store.channels.get_many(ids[:_LISTED_IN_CONFIRMATION])
        return render(
            request,
            "channels_remove.html",
            ids=ids,
            names=[channel.title or channel.url for channel in listed if channel is not None],
            subscriptions=sum(map(cache.subscribers, ids)),
            hidden=_query_fields(query) | {"sure": "1"} | ({"all": "1"} if selects_all else {}),
            checked=[] if selects_all else ids,
        )
    for_s = parse_duration(form["for"]) if form.get("for") else 0.0
    bulk = BulkChange(cast("Action", action), tuple(ids), form.get("new_tag", ""), for_s)
    return await page(request, result=await post_bulk(request, bulk))


def _parse_query(fields: Mapping[str, str]) -> ChannelQuery:
    """Return the search that the fields of a URL's query or of a form describe.

    Raises :class:`UserError` if a field is invalid.
    """
    limited = {name: text[:_MAX_QUERY_CHARS] for name, text in fields.items()}
    return convert_fields(limited, ChannelQuery, "Invalid search: {}")


def _query_fields(query: ChannelQuery) -> dict[str, str]:
    """Return the non-empty fields of a search as they appear in a URL; the inverse of :func:`_parse_query`."""
    return {name: value for name, value in msgspec.to_builtins(query).items() if value}


def _link(query: ChannelQuery, **changes: object) -> str:
    """Return the URL of the list of channels for ``query``, with the fields in ``changes`` replaced.

    If ``query`` already has the sort order in ``changes``, the order is reversed.
    """
    if changes.get("sort") == query.sort and "page" not in changes:
        changes["sort"] = f"-{query.sort}"
    fields = {name: str(value) for name, value in {**_query_fields(query), **changes}.items() if value}
    return f"/channels?{urlencode(fields)}"
