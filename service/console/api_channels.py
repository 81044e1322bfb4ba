"""The API's part about many channels at once."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from aiohttp import web

from service.console import bulk
from service.console.access import act
from service.console.audited import DETAIL
from service.console.bulk import Action, Done
from service.console.openapi import BODY, Operation
from service.console.site import ROSTER, STORE
from service.console.wire import answer, body

_MOST_CHANNELS = 1_000
_LONGEST_PAUSE_S = 366 * 86_400.0

_Id = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")]


class Bulk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to do to which channels. ``tag`` is for tag and untag; ``for_s`` how long to pause, 0 until resumed."""

    action: Action
    channels: Annotated[tuple[_Id, ...], msgspec.Meta(min_length=1, max_length=_MOST_CHANNELS)]
    tag: str = ""
    for_s: Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_PAUSE_S)] = 0.0


async def post_bulk(request: web.Request) -> web.Response:
    """Do the same to many channels: pause, resume, poll, list, unlist, tag, untag or remove them."""
    wanted = await body(request, Bulk)
    request[DETAIL] = f"{wanted.action} {wanted.tag} {len(wanted.channels)} channels"
    done = await bulk.act(request.app[STORE], wanted.action, wanted.channels, tag=wanted.tag, for_s=wanted.for_s)
    await request.app[ROSTER].again(wanted.channels)
    return answer(done)


OPERATIONS: Final[Sequence[Operation]] = (
    Operation("POST", "/channels/bulk", act("channels"), post_bulk, {200: Done}, body=Bulk, problems=BODY),
)
