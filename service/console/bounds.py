"""What admins want of one channel's polls: a longest wait, a shortest interval, and the way back."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from aiohttp import web

from service.console.access import act
from service.console.audited import DETAIL
from service.console.catalogue import ChannelDetail, detail, existing
from service.console.channel_page import shown
from service.console.openapi import BODY, Operation, Parameter
from service.console.phrases import bounds_in_words
from service.console.site import STORE, VISITOR
from service.console.spans import seconds_in, span
from service.console.wire import answer, body
from service.corona.policy import Bounds
from service.errors import UserError
from service.model import ChannelId

_LONGEST_FIELD: Final = 40


async def set_bounds(request: web.Request) -> web.StreamResponse:
    """Bound how often a channel is polled, or undo that."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    form = {name: str(value)[:_LONGEST_FIELD] for name, value in (await request.post()).items()}
    try:
        await _set(request, channel.id, await _before(request, channel.id) if form.get("undo") else _read(form))
    except UserError as error:
        return await shown(request, 422, error=str(error))
    raise web.HTTPSeeOther(f"/channels/{channel.id}#bounds")


async def put_bounds(request: web.Request) -> web.Response:
    """Bound how often a channel is polled; what is left out is as the policy has it."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    await _set(request, channel.id, await body(request, Bounds))
    return answer(await detail(request.app[STORE], channel.id))


async def undo_bounds(request: web.Request) -> web.Response:
    """Give a channel the bounds that it had before the last change of them."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    await _set(request, channel.id, await _before(request, channel.id))
    return answer(await detail(request.app[STORE], channel.id))


async def _set(request: web.Request, cid: ChannelId, bounds: Bounds) -> None:
    request[DETAIL] = bounds_in_words(bounds)
    if bounds.contradict:
        raise UserError(
            f"Polls {span(bounds.shortest_interval_s or 0)} apart make for a mean wait of half of that, which is "
            f"longer than {span(bounds.longest_wait_s or 0)}. Choose a shorter interval, or a longer wait."
        )
    await request.app[STORE].bounds.set(cid, bounds, by=request[VISITOR].name)


async def _before(request: web.Request, cid: ChannelId) -> Bounds:
    found = await request.app[STORE].bounds.get(cid)
    if found is None:
        raise UserError("Nobody has set bounds for this channel, so there is no change to undo.")
    return found.before


def _read(form: Mapping[str, str]) -> Bounds:
    given = {name: seconds_in(text) for name in Bounds.__struct_fields__ if (text := form.get(name, "").strip())}
    try:
        return msgspec.convert(given, Bounds)
    except msgspec.ValidationError as error:
        raise UserError(f"These are no bounds: {error}") from error


_CID: Final = Parameter("cid", "path", "A channel's id: 40 hexadecimal digits.")

OPERATIONS: Final[Sequence[Operation]] = (
    Operation(
        "PUT",
        "/channels/{cid}/bounds",
        act("channels"),
        put_bounds,
        {200: ChannelDetail},
        body=Bounds,
        parameters=(_CID,),
        problems=(404, 429, *BODY),
    ),
    Operation(
        "POST",
        "/channels/{cid}/bounds/undo",
        act("channels"),
        undo_bounds,
        {200: ChannelDetail},
        parameters=(_CID,),
        problems=(404, 422, 429),
    ),
)
