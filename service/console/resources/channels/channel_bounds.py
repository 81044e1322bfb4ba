"""A channel's own bounds on its poll rate: setting them and undoing the last change."""

from typing import Final

from aiohttp import web

from service.console.api.operations import Operations
from service.console.app_keys import PRINCIPAL, STORE
from service.console.auth.permissions import write_access
from service.console.durations import format_duration, parse_duration
from service.console.forms import convert_fields, read_form, redirect_after, redisplay_on_error
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.polling_descriptions import describe_bounds
from service.console.queries.channel_details import ChannelDetail, read_requested_channel
from service.console.resources.channels.channel import get_channel, page
from service.corona.fleet_policy import ChannelBounds
from service.errors import UserError
from service.model import ChannelId

operation = OPERATIONS = Operations()

_MAX_FIELD_CHARS: Final = 40


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
