"""The API's part about many channels at once, and the sites that publish them."""

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from aiohttp import web

from service.console import bulk
from service.console.access import act, look
from service.console.audited import DETAIL
from service.console.bulk import Action, Done
from service.console.hosts import PAGE, Site, sites
from service.console.openapi import BODY, CURSOR, LIMIT, Operation, Parameter
from service.console.site import ROSTER, STORE
from service.console.wire import answer, body, limit
from service.errors import UserError

_MOST_CHANNELS = 1_000
_MOST_DIGITS = 9
_LONGEST_PAUSE_S = 366 * 86_400.0

_Id = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")]


class Bulk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to do to which channels. ``tag`` is for tag and untag; ``for_s`` how long to pause, 0 until resumed."""

    action: Action
    channels: Annotated[tuple[_Id, ...], msgspec.Meta(min_length=1, max_length=_MOST_CHANNELS)]
    tag: str = ""
    for_s: Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_PAUSE_S)] = 0.0


class Hosts(msgspec.Struct, frozen=True):
    """Publishers' sites, those of most channels first; ``next`` is the cursor of what follows, "" at the end."""

    items: tuple[Site, ...]
    next: str


async def get_hosts(request: web.Request) -> web.Response:
    """Publishers' sites, those of most channels first, a page at a time."""
    found = await sites(request.app[STORE], request.app[ROSTER], request.query.get("q", ""))
    rest = _after(found, request.query.get("cursor", ""))
    count = limit(request, PAGE)
    following = f"{rest[count - 1].channels} {rest[count - 1].site}" if len(rest) > count else ""
    return answer(Hosts(tuple(rest[:count]), following))


def _after(found: Sequence[Site], cursor: str) -> Sequence[Site]:
    """Return the sites behind the one that a cursor names, by where it stood: it may have more channels by now."""
    if not cursor:
        return found
    channels, _, name = cursor.partition(" ")
    if not (channels.isdecimal() and channels.isascii() and len(channels) <= _MOST_DIGITS):
        raise UserError("This cursor is not one the console gave out. Start again without it.")
    return [site for site in found if (-site.channels, site.site) > (-int(channels), name)]


async def post_bulk(request: web.Request) -> web.Response:
    """Do the same to many channels: pause, resume, poll, list, unlist, tag, untag or remove them."""
    wanted = await body(request, Bulk)
    request[DETAIL] = f"{wanted.action} {wanted.tag} {len(wanted.channels)} channels"
    done = await bulk.act(request.app[STORE], wanted.action, wanted.channels, tag=wanted.tag, for_s=wanted.for_s)
    await request.app[ROSTER].again(wanted.channels)
    return answer(done)


_PART = Parameter("q", "query", "Only sites whose name holds this text.")

OPERATIONS: Final[Sequence[Operation]] = (
    Operation(
        "GET", "/hosts", look("channels"), get_hosts, {200: Hosts}, parameters=(_PART, CURSOR, LIMIT), problems=(422,)
    ),
    Operation("POST", "/channels/bulk", act("channels"), post_bulk, {200: Done}, body=Bulk, problems=BODY),
)
