"""The API's part about many channels at once, and the sites that publish them."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from aiohttp import web

from service.console import bulk
from service.console.access import act, look
from service.console.audited import DETAIL
from service.console.bulk import Action, Done
from service.console.hosts import PAGE, Site, sites
from service.console.hosts_page import LONGEST_WHY, host_in
from service.console.openapi import BODY, CURSOR, LIMIT, Operation, Parameter
from service.console.site import CLOCK, ROSTER, STORE, VISITOR
from service.console.wire import answer, body, limit
from service.errors import UserError
from service.store.blocks import Block

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


class SetBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``why`` is for those who look after the service."""

    why: Annotated[str, msgspec.Meta(max_length=LONGEST_WHY)] = ""


class Blocked(msgspec.Struct, frozen=True):
    """The hosts, and domains with all their hosts, that nobody is to ask for anything."""

    items: dict[str, Block]


async def get_blocked_hosts(request: web.Request) -> web.Response:
    """The hosts that nobody is to ask for anything."""
    return answer(Blocked(await request.app[STORE].blocks.all()))


async def block_host(request: web.Request) -> web.Response:
    """Have nobody ask a host, or all hosts of a domain, for anything, and refuse new subscriptions there."""
    name, wanted = host_in(request.match_info["host"]), await body(request, SetBlock)
    request[DETAIL] = f"{name}: {wanted.why}"
    await request.app[STORE].blocks.add(name, Block(request[VISITOR].name, request.app[CLOCK].wall_s(), wanted.why))
    return await get_blocked_hosts(request)


async def allow_host(request: web.Request) -> web.Response:
    """Let a host that was blocked be asked again."""
    name = host_in(request.match_info["host"])
    request[DETAIL] = name
    if not await request.app[STORE].blocks.lift(name):
        raise web.HTTPNotFound(text=f"{name} is not blocked. What is blocked, is listed by its own name.")
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def post_bulk(request: web.Request) -> web.Response:
    """Do the same to many channels: pause, resume, poll, list, unlist, tag, untag or remove them."""
    wanted = await body(request, Bulk)
    request[DETAIL] = f"{wanted.action} {wanted.tag} {len(wanted.channels)} channels"
    done = await bulk.act(request.app[STORE], wanted.action, wanted.channels, tag=wanted.tag, for_s=wanted.for_s)
    await request.app[ROSTER].again(wanted.channels)
    return answer(done)


_HOST = Parameter("host", "path", "A publisher's host, as in a URL; a domain stands for all its hosts.")
_PART = Parameter("q", "query", "Only sites whose name holds this text.")

OPERATIONS: Final[Sequence[Operation]] = (
    Operation(
        "GET", "/hosts", look("channels"), get_hosts, {200: Hosts}, parameters=(_PART, CURSOR, LIMIT), problems=(422,)
    ),
    Operation("GET", "/blocked-hosts", look("channels"), get_blocked_hosts, {200: Blocked}),
    Operation(
        "PUT",
        "/hosts/{host}/block",
        act("channels"),
        block_host,
        {200: Blocked},
        body=SetBlock,
        parameters=(_HOST,),
        problems=(429, *BODY),
    ),
    Operation(
        "DELETE",
        "/hosts/{host}/block",
        act("channels"),
        allow_host,
        {204: None},
        parameters=(_HOST,),
        problems=(404, 422),
    ),
    Operation("POST", "/channels/bulk", act("channels"), post_bulk, {200: Done}, body=Bulk, problems=BODY),
)
