"""Settings that admins make for one channel: pause, tags, note, listing, and the channel's own bounds on its poll rate.

The module also contains the rules for tags and their parser. The last change of the bounds can be undone.
"""

import asyncio
from typing import Final

import msgspec
from aiohttp import web

from service.console.api.operations import Operations
from service.console.app_keys import CHANNEL_CACHE, PRINCIPAL, STORE
from service.console.auth.permissions import write_access
from service.console.formatting import format_duration, parse_duration
from service.console.forms import convert_fields, read_form, redirect_after, redisplay_on_error
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.polling_descriptions import describe_bounds
from service.console.queries.channel_details import (
    ChannelDetail,
    read_requested_channel,
)
from service.console.resources.channels.channel import get_channel, page
from service.corona.fleet_policy import ChannelBounds
from service.errors import UserError
from service.model import ChannelId

operation = OPERATIONS = Operations()

MAX_TAGS: Final = 20
_MAX_TAG_CHARS: Final = 40


def parse_tag(text: str) -> str:
    """Return a tag in its stored form: stripped and case-folded.

    Raises :class:`UserError` if ``text`` is too long or not a single printable word.
    """
    tag = text.strip().casefold()
    if not tag or len(tag) > _MAX_TAG_CHARS or len(tag.split()) > 1 or not tag.isprintable():
        raise UserError(f"A tag is a single word of at most {_MAX_TAG_CHARS} characters.")
    return tag


def parse_tags(text: str) -> list[str]:
    """Return the sorted tags in ``text``, which are separated by spaces.

    Raises :class:`UserError` if a tag is invalid, or if there are too many tags.
    """
    tags = sorted({parse_tag(word) for word in text.split()})
    if len(tags) > MAX_TAGS:
        raise UserError(f"A channel can have at most {MAX_TAGS} tags.")
    return tags


PAUSE_UNTIL_RESUMED_S: Final = 10 * 365 * 86_400.0
"""Length of a pause without an end: ten years."""
_MAX_NOTE_CHARS: Final = 2_000


class SetChannel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a channel. If ``listed`` is true, the channel is polled even without subscribers."""

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


_MAX_FIELD_CHARS: Final = 40


@operation("PUT", "/channels/{cid}/bounds", write_access("channels"), 404, 429)
async def put_bounds(request: web.Request, body: ChannelBounds) -> ChannelDetail:
    """Set the bounds on a channel's poll rate; omitted bounds follow the policy."""
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


async def _set_bounds(request: web.Request, cid: ChannelId, bounds: ChannelBounds) -> None:
    request[AUDIT_DETAIL] = describe_bounds(bounds)
    if bounds.are_contradictory:
        raise UserError(
            f"With at least {format_duration(bounds.shortest_interval_s or 0)} between polls, the mean delay is half "
            f"that time, more than {format_duration(bounds.longest_wait_s or 0)}. Choose a shorter minimum interval or "
            "a longer maximum delay."
        )
    await request.app[STORE].poll_bounds.set(cid, bounds, by=request[PRINCIPAL].name)
