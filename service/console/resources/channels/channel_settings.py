"""Settings of one channel by admins: pause, tags, note, and whether it is listed."""

import asyncio
from typing import Final

import msgspec
from aiohttp import web

from service.console.api.operations import Operations
from service.console.app_keys import CHANNEL_CACHE, STORE
from service.console.auth.permissions import write_access
from service.console.durations import parse_duration
from service.console.forms import read_form, redisplay_on_error
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.queries.channel_details import (
    ChannelDetail,
    read_requested_channel,
)
from service.console.resources.channels.channel import get_channel, page
from service.console.resources.channels.tags import parse_tags
from service.model import ChannelId

operation = OPERATIONS = Operations()

PAUSE_UNTIL_RESUMED_S: Final = 10 * 365 * 86_400.0
"""Length of a pause without an end: ten years."""
_MAX_NOTE_CHARS: Final = 2_000


class SetChannel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a channel. ``listed`` channels are polled even without subscribers."""

    listed: bool


@operation("PATCH", "/channels/{cid}", write_access("channels"), 404)
async def patch_channel(request: web.Request, body: SetChannel) -> ChannelDetail:
    """List or unlist a channel."""
    await request.app[STORE].channels.set_listed((await read_requested_channel(request)).id, listed=body.listed)
    return await get_channel(request)


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


async def set_listed(request: web.Request) -> web.Response:
    """List or unlist the channel."""
    cid = (await read_requested_channel(request)).id
    await request.app[STORE].channels.set_listed(cid, listed=(await read_form(request)).get("listed") == "1")
    raise web.HTTPSeeOther(f"/channels/{cid}")


async def _show_again(request: web.Request, cid: ChannelId) -> web.Response:
    await request.app[CHANNEL_CACHE].reload([cid])
    raise web.HTTPSeeOther(f"/channels/{cid}")
