"""One channel: its page, what admins do about it there, and its operations in the API."""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec
from aiohttp import hdrs, web

from service.console.audit_middleware import DETAIL
from service.console.auth.roles import act, look
from service.console.charts import paces_svg, polls_svg, ring_svg
from service.console.error_responses import in_plain_words, shown_on
from service.console.formatting import bounds_in_words, outcome_words, reason_in_words, seconds_in, span
from service.console.openapi import Operations
from service.console.pages.channel_queries import ChannelDetail, ContentView, content, detail, existing
from service.console.pages.channels import UNTIL_RESUMED_S, tags_of
from service.console.rendering import CLOCK, ROSTER, SETTINGS, STORE, VISITOR, form_of, render, zone_of
from service.corona.fleet_policy import NO_BOUNDS, ChannelBounds
from service.errors import CoronetError, UserError
from service.feeds.websub import Status
from service.model import ChannelId, PollResult
from service.store.coordination.requests import ProgressReply

_HUB_WORDS: Final[Mapping[Status, str]] = {
    "wanted": "To be asked for its pushes",
    "pending": "Asked for its pushes, not confirmed yet",
    "verified": "It pushes news",
    "refused": "It refuses to push",
    "leaving": "It is being left",
}
_LONGEST_NOTE: Final = 2_000
_LONGEST_FIELD: Final = 40
_VERSIONS_SHOWN: Final = 5
_VERSIONS_PER_PAGE: Final = 20

operation = OPERATIONS = Operations()


class SetChannel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``listed``: whether the channel is polled even without subscribers."""

    listed: bool


class Message(msgspec.Struct, frozen=True):
    """What the bot would tell subscribers, in English; "" if there is nothing to tell."""

    text: str


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a poll's trace; the last one says whether it went ``well``."""

    words: str
    after_s: float = 0.0
    well: bool | None = None


@operation("PUT", "/channels/{cid}/bounds", act("channels"), 404, 429)
async def put_bounds(request: web.Request, wanted: ChannelBounds) -> ChannelDetail:
    """Bound how often a channel is polled; what is left out is as the policy has it."""
    await _set_bounds(request, (await existing(request)).id, wanted)
    return await get_channel(request)


@operation("POST", "/channels/{cid}/bounds/undo", act("channels"), 404, 422, 429)
async def undo_bounds(request: web.Request) -> ChannelDetail:
    """Give a channel the bounds that it had before the last change of them."""
    cid = (await existing(request)).id
    await _set_bounds(request, cid, await _bounds_before(request, cid))
    return await get_channel(request)


@operation("GET", "/channels/{cid}/message", look("channels"), 404)
async def get_channel_message(request: web.Request) -> Message:
    """Tell what subscribers would be told if a channel's newest entry were news."""
    channel = await existing(request)
    latest = await request.app[STORE].channels.latest(channel.id, 1)
    return Message(await request.app[STORE].dry_runs.preview_message(channel, latest))


@operation("GET", "/channels/{cid}", look("channels"), 404)
async def get_channel(request: web.Request) -> ChannelDetail:
    """One channel with its place on the ring, last polls and latest entries."""
    return await detail(request.app[STORE], request.match_info["cid"])


@operation("PATCH", "/channels/{cid}", act("channels"), 404)
async def patch_channel(request: web.Request, wanted: SetChannel) -> ChannelDetail:
    """List a channel, or stop listing it."""
    await request.app[STORE].channels.set_listed((await existing(request)).id, listed=wanted.listed)
    return await get_channel(request)


@operation("GET", "/channels/{cid}/content", look("channels"), 404)
async def get_content(request: web.Request) -> ContentView:
    """One channel's latest entries from the nearest copy, and where that was."""
    return await content(request.app[STORE], await existing(request))


@operation("DELETE", "/channels/{cid}", act("channels"), 404)
async def delete_channel(request: web.Request) -> None:
    """Remove a channel and end all subscriptions to it."""
    await request.app[STORE].remove_channel((await existing(request)).id)


@operation("POST", "/channels/{cid}/poll", act("channels"), 404, 422, 502)
async def poll_channel(request: web.Request) -> PollResult:
    """Poll a channel at once, and say how it ended."""
    return await request.app[STORE].worker_requests.poll_now((await existing(request)).id)


async def page(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Show one channel."""
    store, now_s = request.app[STORE], request.app[CLOCK].wall_s()
    about, nodes = await asyncio.gather(detail(store, request.match_info["cid"]), store.ring.nodes())
    moved_to = about.channel.moved_to
    successor = await store.channels.get(moved_to) if moved_to else None
    names = {node.id: node.name for node in nodes}
    return render(
        request,
        "channel.html",
        status,
        about=about,
        channel=about.channel,
        successor=successor,
        names=names,
        site_requests_per_s=about.site_requests_per_s or request.app[SETTINGS].host_requests_per_s,
        picture=ring_svg(nodes, about.channel.id, [node.id for node in about.polling_set]),
        paces=paces_svg(about.paces, now_s, zone_of(request)),
        timeline=polls_svg(about.polls, about.why.turns if about.why else (), names, now_s),
        versions=await store.channels.versions(about.channel.id, _VERSIONS_SHOWN),
        reason=reason_in_words(about.why) if about.why else "",
        longest_wait_s=(await store.fleet_policy.get() or request.app[SETTINGS].policy().objective).longest_wait_s,
        own=about.bounds.bounds if about.bounds else NO_BOUNDS,
        span=span,
        hub_words=_HUB_WORDS,
        polled="polled" in request.query,
        error=error,
    )


async def versions(request: web.Request) -> web.Response:
    """Show a channel's versions and what each of them changed."""
    channel = await existing(request)
    text = request.query.get("before", "")[:12]
    before = int(text) if text.isdecimal() else 0
    found = await request.app[STORE].channels.versions(channel.id, _VERSIONS_PER_PAGE, before)
    return render(
        request, "channel_versions.html", channel=channel, versions=found, full=len(found) == _VERSIONS_PER_PAGE
    )


async def located(request: web.Request) -> web.Response:
    """Show a channel's content as the nearest copy has it, and where that was."""
    channel = await existing(request)
    found = await content(request.app[STORE], channel)
    return render(request, "channel_content.html", channel=channel, content=found)


@shown_on(page)
async def poll(request: web.Request) -> web.Response:
    """Have the channel polled at once, then show it."""
    await poll_channel(request)
    raise web.HTTPSeeOther(f"/channels/{request.match_info['cid']}?polled=1")


async def trace(request: web.Request) -> web.StreamResponse:
    """Have the channel polled at once, and tell each step while it happens, a line of JSON each."""
    channel = await existing(request)
    response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "application/x-ndjson"})
    await response.prepare(request)

    async def write(told: Told) -> None:
        await response.write(msgspec.json.encode(told) + b"\n")

    async def on_step(step: ProgressReply) -> None:
        await write(Told(step.text, step.elapsed_s))

    ring = await request.app[STORE].ring.view()
    owner = ring.owner(channel.id)
    name = next((node.name for node in ring.nodes if node.id == owner), "")
    await write(Told(f"Asks {name}, which owns the channel." if name else "Looks for a worker."))
    try:
        result = await request.app[STORE].worker_requests.poll_now(channel.id, on_progress=on_step)
    except CoronetError as error:
        await write(Told(in_plain_words(error), well=False))
    else:
        well = result.outcome in {"new", "unchanged"}
        await write(Told(f"{outcome_words(result.outcome)}. {result.detail}".strip(), well=well))
    await response.write_eof()
    return response


@shown_on(page)
async def pause(request: web.Request) -> web.Response:
    """Have nobody poll a channel for a time, or until somebody resumes it, or poll it again."""
    cid, form = (await existing(request)).id, await form_of(request)
    text = form.get("for", "")
    for_s = 0.0 if form.get("resume") else seconds_in(text) if text else UNTIL_RESUMED_S
    request[DETAIL] = text or ("resume" if form.get("resume") else "until resumed")
    await request.app[STORE].admin_settings.pause([cid], for_s)
    return await _back(request, cid)


@shown_on(page)
async def remark(request: web.Request) -> web.Response:
    """Note something about a channel, and file it under tags."""
    cid, form = (await existing(request)).id, await form_of(request)
    tags, remarks = tags_of(form.get("tags", "")), request.app[STORE].admin_settings
    await asyncio.gather(remarks.set_note(cid, form.get("note", "")[:_LONGEST_NOTE]), remarks.set_tags([(cid, tags)]))
    return await _back(request, cid)


@shown_on(page)
async def set_bounds(request: web.Request) -> web.Response:
    """Bound how often a channel is polled, or undo that."""
    cid, form = (await existing(request)).id, await form_of(request)
    given = {
        name: seconds_in(text)
        for name in ChannelBounds.__struct_fields__
        if (text := form.get(name, "")[:_LONGEST_FIELD])
    }
    try:
        bounds = await _bounds_before(request, cid) if form.get("undo") else msgspec.convert(given, ChannelBounds)
    except msgspec.ValidationError as error:
        raise UserError(f"These are no bounds: {error}") from error
    await _set_bounds(request, cid, bounds)
    raise web.HTTPSeeOther(f"/channels/{cid}#bounds")


async def set_listed(request: web.Request) -> web.Response:
    """Have the channel polled even without subscribers, or not."""
    cid = (await existing(request)).id
    await request.app[STORE].channels.set_listed(cid, listed=(await form_of(request)).get("listed") == "1")
    raise web.HTTPSeeOther(f"/channels/{cid}")


async def remove_form(request: web.Request) -> web.Response:
    """Say what removing would do, and ask."""
    channel = await existing(request)
    subscribers = await request.app[STORE].subscriptions.count(channel.id)
    return render(request, "channel_remove.html", channel=channel, subscribers=subscribers)


async def remove(request: web.Request) -> web.Response:
    """Remove the channel and end all subscriptions to it."""
    await delete_channel(request)
    raise web.HTTPSeeOther("/channels?removed=1")


async def _back(request: web.Request, cid: ChannelId) -> web.Response:
    await request.app[ROSTER].again([cid])
    raise web.HTTPSeeOther(f"/channels/{cid}")


async def _set_bounds(request: web.Request, cid: ChannelId, bounds: ChannelBounds) -> None:
    request[DETAIL] = bounds_in_words(bounds)
    if bounds.are_contradictory:
        raise UserError(
            f"Polls {span(bounds.shortest_interval_s or 0)} apart make for a mean wait of half of that, which is "
            f"longer than {span(bounds.longest_wait_s or 0)}. Choose a shorter interval, or a longer wait."
        )
    await request.app[STORE].poll_bounds.set(cid, bounds, by=request[VISITOR].name)


async def _bounds_before(request: web.Request, cid: ChannelId) -> ChannelBounds:
    found = await request.app[STORE].poll_bounds.get(cid)
    if found is None:
        raise UserError("Nobody has set bounds for this channel, so there is no change to undo.")
    return found.before
