"""The JSON API: what the pages can do, for programs. ``OPERATIONS`` is both its routes and its document."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Final
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from service.console import adding, api_access, api_channels, api_fleet, api_people, bounds, parts, rehearsing
from service.console.access import Need, act, look
from service.console.attention import Overview
from service.console.catalogue import (
    PAGE,
    ChannelDetail,
    ChannelPage,
    ContentView,
    asked_for,
    content,
    detail,
    existing,
    find,
)
from service.console.discovery import (
    DirectoryMetrics,
    Matrices,
    MemoryDirectories,
    SearchResult,
    directories,
    matrices,
    metrics,
    search,
)
from service.console.guard import Handler
from service.console.importing import Imported
from service.console.openapi import BODY, CURSOR, LIMIT, File, Operation, Parameter, document
from service.console.opml import MEDIA_TYPE, get_opml, post_opml
from service.console.overview import overview
from service.console.site import CLOCK, PULSE, ROSTER, SETTINGS, STORE
from service.console.wire import answer, body, limit
from service.feeds.urls import canonical_url
from service.model import PollResult
from service.net.sites import site_of

PREFIX: Final = "/api/v1"
_RAREST_PER_S = 0.001
_MOST_OFTEN_PER_S = 100.0


class SetChannel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``listed``: whether the channel is polled even without subscribers."""

    listed: bool


class SetHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many requests per second the whole fleet may make of a site; what its network may be asked holds besides."""

    requests_per_s: Annotated[float, msgspec.Meta(ge=_RAREST_PER_S, le=_MOST_OFTEN_PER_S)]


class Host(msgspec.Struct, frozen=True):
    """What the fleet may ask of a site, which is the registrable domain with all its hosts; ``set`` by an admin."""

    site: str
    requests_per_s: float
    set: bool


async def get_overview(request: web.Request) -> web.Response:
    """The fleet in numbers, and what needs attention."""
    app = request.app
    return answer(await overview(app[STORE], app[SETTINGS], app[ROSTER], app[PULSE].samples, app[CLOCK].wall_s()))


async def get_channels(request: web.Request) -> web.Response:
    """Channels, a page at a time."""
    cursor = request.query.get("cursor", "")
    return answer(await find(request.app, asked_for(request.query), cursor, limit(request, PAGE)))


async def get_channel(request: web.Request) -> web.Response:
    """One channel with its place on the ring, last polls and latest entries."""
    return answer(await detail(request.app[STORE], request.match_info["cid"]))


async def get_content(request: web.Request) -> web.Response:
    """One channel's latest entries from the nearest copy, and where that was."""
    return answer(await content(request.app[STORE], request.match_info["cid"]))


async def patch_channel(request: web.Request) -> web.Response:
    """List a channel, or stop listing it."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    wanted = await body(request, SetChannel)
    await request.app[STORE].channels.set_listed(channel.id, listed=wanted.listed)
    return await get_channel(request)


async def delete_channel(request: web.Request) -> web.Response:
    """Remove a channel and end all subscriptions to it."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    await request.app[STORE].remove_channel(channel.id)
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def poll_channel(request: web.Request) -> web.Response:
    """Poll a channel at once, and say how it ended."""
    channel = await existing(request.app[STORE], request.match_info["cid"])
    return answer(await request.app[STORE].requests.poll_now(channel.id))


async def get_search(request: web.Request) -> web.Response:
    """Search the directory for channels, or entries, and say how the query was answered."""
    return answer(await search(request.app[STORE], request.app[SETTINGS], request.query.get("q", "")))


async def get_matrices(request: web.Request) -> web.Response:
    """The directory's matrices that have several cells."""
    return answer(await matrices(request.app[STORE]))


async def get_directories(request: web.Request) -> web.Response:
    """The directories that workers keep in memory, with the strategy of each and why it is that."""
    return answer(await directories(request.app[STORE]))


async def get_directory_metrics(request: web.Request) -> web.Response:
    """How good one directory in memory is, from what each worker keeps of it just now."""
    return answer(await metrics(request.app[STORE], request.query.get("pair", "")))


async def get_host(request: web.Request) -> web.Response:
    """How often a host may be asked, and whether an admin or the settings said so."""
    site = _site(request)
    set_per_s = await request.app[STORE].hosts.rate(site)
    usual_per_s = request.app[SETTINGS].host_requests_per_s
    return answer(Host(site, usual_per_s if set_per_s is None else set_per_s, set=set_per_s is not None))


async def put_host(request: web.Request) -> web.Response:
    """Set how often a host, with all others of its site, may be asked from now on."""
    wanted = await body(request, SetHost)
    await request.app[STORE].hosts.set_rate(_site(request), wanted.requests_per_s)
    return await get_host(request)


async def delete_host(request: web.Request) -> web.Response:
    """Have the settings decide again how often a host may be asked."""
    await request.app[STORE].hosts.forget_rate(_site(request))
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def get_openapi(_: web.Request) -> web.Response:
    """This document."""
    return answer(document(PREFIX, OPERATIONS))


_CID = Parameter("cid", "path", "A channel's id: 40 hexadecimal digits.")
_HOST = Parameter("host", "path", "A publisher's host, as in a URL.")
_PAIR = Parameter("pair", "query", "The directory's AV-pair, like `tag=python`.")
_QUERY = Parameter("q", "query", 'What to look for, as in chat: `tag=python lang=en author="Jane Doe" limit 5`.')
_FIND = (
    Parameter("q", "query", "Only channels whose title or URL holds this text."),
    Parameter("state", "query", "Only channels that are `polled`, `failing`, `idle`, `paused`, `blocked` or `moved`."),
    Parameter("tag", "query", "Only channels that admins file under this word."),
    Parameter("site", "query", "Only channels of this site: a registrable domain."),
    Parameter(
        "sort",
        "query",
        "`id` (the default), `title`, `subscribers`, `news`, `version`, `site`, `failing` or `added`; `-` before "
        "it turns the order round.",
    ),
    CURSOR,
    LIMIT,
)

OPERATIONS: Final[Sequence[Operation]] = (
    *adding.OPERATIONS,
    *api_channels.OPERATIONS,
    *bounds.OPERATIONS,
    *parts.OPERATIONS,
    *rehearsing.OPERATIONS,
    *api_fleet.OPERATIONS,
    *api_people.OPERATIONS,
    *api_access.OPERATIONS,
    Operation("GET", "/overview", look("fleet"), get_overview, {200: Overview}),
    Operation(
        "GET", "/channels", look("channels"), get_channels, {200: ChannelPage}, parameters=_FIND, problems=(422,)
    ),
    Operation("GET", "/channels.opml", look("channels"), get_opml, {200: File(MEDIA_TYPE)}),
    Operation(
        "POST", "/opml", act("channels"), post_opml, {200: Imported}, body=File(MEDIA_TYPE), problems=(413, 415, 422)
    ),
    Operation(
        "GET",
        "/channels/{cid}",
        look("channels"),
        get_channel,
        {200: ChannelDetail},
        parameters=(_CID,),
        problems=(404,),
    ),
    Operation(
        "PATCH",
        "/channels/{cid}",
        act("channels"),
        patch_channel,
        {200: ChannelDetail},
        body=SetChannel,
        parameters=(_CID,),
        problems=(404, *BODY),
    ),
    Operation(
        "GET",
        "/channels/{cid}/content",
        look("channels"),
        get_content,
        {200: ContentView},
        parameters=(_CID,),
        problems=(404,),
    ),
    Operation(
        "DELETE", "/channels/{cid}", act("channels"), delete_channel, {204: None}, parameters=(_CID,), problems=(404,)
    ),
    Operation(
        "POST",
        "/channels/{cid}/poll",
        act("channels"),
        poll_channel,
        {200: PollResult},
        parameters=(_CID,),
        problems=(404, 422, 502),
    ),
    Operation("GET", "/search", look("fleet"), get_search, {200: SearchResult}, parameters=(_QUERY,), problems=(422,)),
    Operation("GET", "/matrices", look("fleet"), get_matrices, {200: Matrices}),
    Operation("GET", "/directories", look("fleet"), get_directories, {200: MemoryDirectories}),
    Operation(
        "GET",
        "/directories/metrics",
        look("fleet"),
        get_directory_metrics,
        {200: DirectoryMetrics},
        parameters=(_PAIR,),
        problems=(404,),
    ),
    Operation("GET", "/hosts/{host}", look("channels"), get_host, {200: Host}, parameters=(_HOST,), problems=(422,)),
    Operation(
        "PUT",
        "/hosts/{host}",
        act("channels"),
        put_host,
        {200: Host},
        body=SetHost,
        parameters=(_HOST,),
        problems=BODY,
    ),
    Operation(
        "DELETE", "/hosts/{host}", act("channels"), delete_host, {204: None}, parameters=(_HOST,), problems=(422,)
    ),
)


def routes() -> list[web.RouteDef]:
    """Return the API's closed routes."""
    return [web.route(each.method, PREFIX + each.path, each.handler) for each in OPERATIONS]


def needs() -> Mapping[Handler, Need]:
    """Return what each of them asks of who comes."""
    return {each.handler: each.need for each in OPERATIONS}


def _site(request: web.Request) -> str:
    return site_of(urlsplit(canonical_url(f"https://{request.match_info['host']}/")).hostname or "")
