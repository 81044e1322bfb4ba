"""The page of one channel and its API operations: state, schedule, versions, and the actions on the channel."""

import asyncio
import time
from typing import Final

import msgspec
from aiohttp import hdrs, web

from service.console.audit_entries import AUDIT_DETAIL
from service.console.auth.roles import read_access, write_access
from service.console.channel_views import ChannelDetail, read_channel_detail, read_requested_channel
from service.console.charts import draw_poll_rate, draw_poll_timeline, draw_ring
from service.console.error_responses import public_message
from service.console.formatting import describe_bounds, format_duration, is_success, outcome_label, parse_duration
from service.console.forms import convert_fields, read_form, redirect_after, redisplay_on_error
from service.console.openapi import Operations
from service.console.rendering import CHANNEL_CACHE, PRINCIPAL, SETTINGS, STORE, render, time_zone
from service.console.resources.channels.channel_list import PAUSE_UNTIL_RESUMED_S, parse_tags
from service.corona.fleet_policy import NO_BOUNDS, ChannelBounds
from service.entry_registration import remove_channel
from service.errors import CoronetError, NoWorker, UserError
from service.location.content_cache import MAX_LATEST_ENTRIES
from service.model import ChannelId, Entry, PollResult
from service.store.coordination.worker_requests import ContentSource

_MAX_NOTE_CHARS: Final = 2_000
_MAX_FIELD_CHARS: Final = 40
_VERSIONS_SHOWN: Final = 5
_VERSIONS_PER_PAGE: Final = 20

operation = OPERATIONS = Operations()


class SetChannel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a channel. ``listed`` channels are polled even without subscribers."""

    listed: bool


class Message(msgspec.Struct, frozen=True):
    """The message that the bot would send to subscribers, in English; "" if there is nothing to send."""

    text: str


class TraceLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step of a poll, which happened ``after_s`` seconds after its start.

    Only the last line has ``success``, which says whether the poll succeeded.
    """

    text: str
    after_s: float = 0.0
    success: bool | None = None


class ContentView(msgspec.Struct, frozen=True):
    """A channel's latest entries (newest first) at a version, and the place where the copy was found.

    ``source`` is ``cache`` for the cache of the requested worker, and ``near`` for the cache of another worker. Then
    ``hops`` is that worker's distance according to the attenuated Bloom filters, and ``worker`` its name, or "" if
    unknown. ``owner`` stands for the worker that is responsible for the channel, and ``store`` for the database.
    ``publisher`` means that there was no copy and the content was fetched.
    """

    version: int
    latest: tuple[Entry, ...]
    source: ContentSource
    hops: int
    worker: str


@operation("PUT", "/channels/{cid}/bounds", write_access("channels"), 404, 429)
async def put_bounds(request: web.Request, body: ChannelBounds) -> ChannelDetail:
    """Set the bounds on a channel's poll rate; omitted ones follow the policy."""
    await _set_bounds(request, (await read_requested_channel(request)).id, body)
    return await get_channel(request)


@operation("POST", "/channels/{cid}/bounds/undo", write_access("channels"), 404, 422, 429)
async def undo_bounds(request: web.Request) -> ChannelDetail:
    """Restore a channel's previous bounds."""
    cid = (await read_requested_channel(request)).id
    present = await request.app[STORE].poll_bounds.get(cid)
    if present is None:
        raise UserError("This channel has never had bounds of its own, so there is nothing to undo.")
    await _set_bounds(request, cid, present.before)
    return await get_channel(request)


@operation("GET", "/channels/{cid}/message", read_access("channels"), 404)
async def get_channel_message(request: web.Request) -> Message:
    """Preview the notification that subscribers would get for a channel's newest entry."""
    channel = await read_requested_channel(request)
    latest = await request.app[STORE].channels.latest(channel.id, 1)
    return Message(await request.app[STORE].bot_requests.preview_message(channel, latest))


@operation("GET", "/channels/{cid}", read_access("channels"), 404)
async def get_channel(request: web.Request) -> ChannelDetail:
    """Get one channel with its owner and polling set, last polls and latest entries."""
    return await read_channel_detail(request.app[STORE], (await read_requested_channel(request)).id)


@operation("PATCH", "/channels/{cid}", write_access("channels"), 404)
async def patch_channel(request: web.Request, body: SetChannel) -> ChannelDetail:
    """List or unlist a channel."""
    await request.app[STORE].channels.set_listed((await read_requested_channel(request)).id, listed=body.listed)
    return await get_channel(request)


@operation("GET", "/channels/{cid}/content", read_access("channels"), 404)
async def get_content(request: web.Request) -> ContentView:
    """Get a channel's latest entries from the nearest copy, and that copy's location."""
    store, channel = request.app[STORE], await read_requested_channel(request)
    try:
        found = await store.worker_requests.content(channel.id)
    except NoWorker:
        return ContentView(channel.version, await store.channels.latest(channel.id, MAX_LATEST_ENTRIES), "store", 0, "")
    return ContentView(found.version, found.latest, found.source, found.hops, found.worker)


@operation("DELETE", "/channels/{cid}", write_access("channels"), 404)
async def delete_channel(request: web.Request) -> None:
    """Remove a channel and all subscriptions to it."""
    await remove_channel(request.app[STORE], (await read_requested_channel(request)).id)


@operation("POST", "/channels/{cid}/poll", write_access("channels"), 404, 422, 502)
async def poll_channel(request: web.Request) -> PollResult:
    """Poll a channel now and return the result."""
    return await request.app[STORE].worker_requests.poll_now((await read_requested_channel(request)).id)


async def page(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Show one channel. ``error`` is the message of a failed change."""
    store, now_s = request.app[STORE], time.time()
    detail, nodes = await asyncio.gather(get_channel(request), store.ring.nodes())
    moved_to = detail.channel.moved_to
    successor = await store.channels.get(moved_to) if moved_to else None
    names = {node.id: node.name for node in nodes}
    return render(
        request,
        "channel.html",
        status,
        detail=detail,
        successor=successor,
        names=names,
        picture=draw_ring(nodes, detail.channel.id, [node.id for node in detail.polling_set]),
        poll_rates=draw_poll_rate(detail.poll_rates, now_s, time_zone(request)),
        timeline=draw_poll_timeline(detail.polls, detail.why.turns if detail.why else (), names, now_s),
        versions=await store.channels.versions(detail.channel.id, _VERSIONS_SHOWN),
        longest_wait_s=(await store.fleet_policy.get() or request.app[SETTINGS].policy().objective).longest_wait_s,
        own=detail.bounds.bounds if detail.bounds else NO_BOUNDS,
        error=error,
    )


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
    """Show a channel's content from the nearest copy, and that copy's location."""
    channel = await read_requested_channel(request)
    return render(request, "channel_content.html", channel=channel, content=await get_content(request))


poll = redirect_after(poll_channel, "/channels/{cid}?polled=1", page)


async def trace_poll(request: web.Request) -> web.StreamResponse:
    """Poll the channel now and stream the steps as lines of JSON."""
    channel = await read_requested_channel(request)
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "application/x-ndjson"})
    await response.prepare(request)

    async def write(text: str, after_s: float = 0.0, *, success: bool | None = None) -> None:
        await response.write(msgspec.json.encode(TraceLine(text, after_s, success)) + b"\n")

    ring = await request.app[STORE].ring.view()
    owner = ring.owner(channel.id)
    name = next((node.name for node in ring.nodes if node.id == owner), "")
    await write(f"Sending the request to {name}, the channel's owner." if name else "Looking for a worker.")
    try:
        result = await request.app[STORE].worker_requests.poll_now(
            channel.id, on_progress=lambda step: write(step.text, step.elapsed_s)
        )
    except CoronetError as error:
        await write(public_message(error), success=False)
    else:
        await write(f"{outcome_label(result.outcome)}. {result.detail}".strip(), success=is_success(result.outcome))
    await response.write_eof()
    return response


@redisplay_on_error(page)
async def pause(request: web.Request) -> web.Response:
    """Pause a channel for some time or until it is resumed, or resume it."""
    cid, form = (await read_requested_channel(request)).id, await read_form(request)
    text = form.get("for", "")
    for_s = 0.0 if form.get("resume") else parse_duration(text) if text else PAUSE_UNTIL_RESUMED_S
    request[AUDIT_DETAIL] = text or ("resume" if form.get("resume") else "until resumed")
    await request.app[STORE].admin_settings.pause([cid], for_s)
    return await _show_again(request, cid)


@redisplay_on_error(page)
async def set_tags_and_note(request: web.Request) -> web.Response:
    """Set the tags and the note of a channel."""
    cid, form = (await read_requested_channel(request)).id, await read_form(request)
    tags, remarks = parse_tags(form.get("tags", "")), request.app[STORE].admin_settings
    await asyncio.gather(remarks.set_note(cid, form.get("note", "")[:_MAX_NOTE_CHARS]), remarks.set_tags([(cid, tags)]))
    return await _show_again(request, cid)


@redisplay_on_error(page)
async def set_bounds(request: web.Request) -> web.Response:
    """Set the bounds on a channel's poll rate."""
    cid, form = (await read_requested_channel(request)).id, await read_form(request)
    values = {
        name: parse_duration(text)
        for name in ChannelBounds.__struct_fields__
        if (text := form.get(name, "")[:_MAX_FIELD_CHARS])
    }
    await _set_bounds(request, cid, convert_fields(values, ChannelBounds, "Invalid bounds: {}"))
    raise web.HTTPSeeOther(f"/channels/{cid}#bounds")


restore_bounds = redirect_after(undo_bounds, "/channels/{cid}#bounds", page)


async def set_listed(request: web.Request) -> web.Response:
    """List or unlist the channel."""
    cid = (await read_requested_channel(request)).id
    await request.app[STORE].channels.set_listed(cid, listed=(await read_form(request)).get("listed") == "1")
    raise web.HTTPSeeOther(f"/channels/{cid}")


async def remove_form(request: web.Request) -> web.Response:
    """Show the confirmation of a channel's removal."""
    channel = await read_requested_channel(request)
    subscribers = await request.app[STORE].subscriptions.count(channel.id)
    return render(request, "channel_remove.html", channel=channel, subscribers=subscribers)


remove = redirect_after(delete_channel, "/channels?removed=1")


async def _show_again(request: web.Request, cid: ChannelId) -> web.Response:
    await request.app[CHANNEL_CACHE].reload([cid])
    raise web.HTTPSeeOther(f"/channels/{cid}")


async def _set_bounds(request: web.Request, cid: ChannelId, bounds: ChannelBounds) -> None:
    request[AUDIT_DETAIL] = describe_bounds(bounds)
    if bounds.are_contradictory:
        raise UserError(
            f"With at least {format_duration(bounds.shortest_interval_s or 0)} between polls, the mean delay is half "
            f"that time, more than {format_duration(bounds.longest_wait_s or 0)}. Choose a shorter minimum interval or "
            "a longer maximum delay."
        )
    await request.app[STORE].poll_bounds.set(cid, bounds, by=request[PRINCIPAL].name)
