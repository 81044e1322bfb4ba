"""The page of one channel and its API operations: state, schedule, versions, polls on request, and removal."""

import asyncio
import time
from typing import Final

import msgspec
from aiohttp import hdrs, web

from service.console.api.operations import Operations
from service.console.app_keys import SETTINGS, STORE, time_zone
from service.console.auth.permissions import read_access, write_access
from service.console.charts import draw_poll_rate, draw_poll_timeline, draw_ring
from service.console.formatting import is_success, outcome_label
from service.console.forms import redirect_after
from service.console.middleware.error_responses import public_message
from service.console.page_rendering import render
from service.console.queries.channel_details import ChannelDetail, read_channel_detail, read_requested_channel
from service.corona.fleet_policy import NO_BOUNDS
from service.errors import CoronetError
from service.model import PollResult
from service.search.entry_registration import remove_channel

_VERSIONS_SHOWN: Final = 5

operation = OPERATIONS = Operations()


class Message(msgspec.Struct, frozen=True):
    """The message that the bot would send to subscribers, in English; "" if there is nothing to send."""

    text: str


class TraceLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step of a poll: its text, and the time since the start of the poll in seconds (``after_s``).

    Only the last line has ``success``, which is true if the poll succeeded.
    """

    text: str
    after_s: float = 0.0
    success: bool | None = None


@operation("GET", "/channels/{cid}/message", read_access("channels"), 404)
async def get_channel_message(request: web.Request) -> Message:
    """Preview the notification that subscribers would get for a channel's newest entry."""
    channel = await read_requested_channel(request)
    latest = await request.app[STORE].channels.latest(channel.id, 1)
    return Message(await request.app[STORE].bot_requests.preview_message(channel, latest))


@operation("GET", "/channels/{cid}", read_access("channels"), 404)
async def get_channel(request: web.Request) -> ChannelDetail:
    """Get one channel with its owner, the nodes that poll it, its last polls and its latest entries.

    The owner is the node that is responsible for the channel.
    """
    return await read_channel_detail(request.app[STORE], (await read_requested_channel(request)).id)


@operation("DELETE", "/channels/{cid}", write_access("channels"), 404)
async def delete_channel(request: web.Request) -> None:
    """Remove a channel and all subscriptions to it."""
    await remove_channel(request.app[STORE], (await read_requested_channel(request)).id)


@operation("POST", "/channels/{cid}/poll", write_access("channels"), 404, 422, 502)
async def poll_channel(request: web.Request) -> PollResult:
    """Poll a channel now and return the result."""
    return await request.app[STORE].worker_requests.poll_now((await read_requested_channel(request)).id)


async def page(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Show one channel. ``error`` is the message to show if a change failed."""
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


async def remove_form(request: web.Request) -> web.Response:
    """Show the page that asks for confirmation before a channel is removed."""
    channel = await read_requested_channel(request)
    subscribers = await request.app[STORE].subscriptions.count(channel.id)
    return render(request, "channel_remove.html", channel=channel, subscribers=subscribers)


remove = redirect_after(delete_channel, "/channels?removed=1")
