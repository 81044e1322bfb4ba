"""Publishers' sites: the page Hosts, and its operations in the API.

A site is a registrable domain with all its hosts. Admins see how it answers, set how often it may be asked, pause its
channels, and block hosts.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final
from urllib.parse import urlencode, urlsplit

import msgspec
from aiohttp import web

from service.console.audit_middleware import DETAIL
from service.console.auth.roles import act, look
from service.console.channel_cache import FOREIGN_CURSOR, Roster, Row
from service.console.error_responses import shown_on
from service.console.openapi import CURSOR, LIMIT, Operations, Parameter
from service.console.pages.channel_queries import page_number, views
from service.console.pages.channels import UNTIL_RESUMED_S
from service.console.rendering import CLOCK, ROSTER, SETTINGS, STORE, VISITOR, form_of, limit, render
from service.errors import UserError
from service.feeds.urls import canonical_url
from service.model import ChannelId, PollResult
from service.net.sites import site_of
from service.store import Store
from service.store.channels.channels import POLLS_KEPT
from service.store.coordination.request_budgets import HostBlock

_PAGE: Final = 50
_POLLS_OF: Final = 250
_BUSY: Final = 429
_LONGEST_NAME: Final = 253
_LONGEST_WHY: Final = 200
_RAREST_PER_S: Final = 0.001
_MOST_OFTEN_PER_S: Final = 100.0
_MOST_PAUSED: Final = 5_000
_MOST_DIGITS: Final = 9

operation = OPERATIONS = Operations()


class Site(msgspec.Struct, frozen=True):
    """A registrable domain: how many of its channels are watched, by how many subscriptions, and how many fail.

    ``requests_per_s`` is what an admin set, null for what the settings say; ``blocked`` are its hosts, or the site as a
    whole, that nobody is to ask.
    """

    site: str
    channels: int
    subscriptions: int
    failing: int
    requests_per_s: float | None
    blocked: tuple[str, ...]


class Hosts(msgspec.Struct, frozen=True):
    """Publishers' sites, those of most channels first; ``next`` is the cursor of what follows, "" at the end."""

    items: tuple[Site, ...]
    next: str


class SetHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many requests per second the whole fleet may make of a site; what its network may be asked holds besides."""

    requests_per_s: Annotated[float, msgspec.Meta(ge=_RAREST_PER_S, le=_MOST_OFTEN_PER_S)]


class Host(msgspec.Struct, frozen=True):
    """What the fleet may ask of a site, which is the registrable domain with all its hosts; ``set`` by an admin."""

    site: str
    requests_per_s: float
    set: bool


class SetBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``why`` is for those who look after the service."""

    why: Annotated[str, msgspec.Meta(max_length=_LONGEST_WHY)] = ""


class Blocked(msgspec.Struct, frozen=True):
    """The hosts, and domains with all their hosts, that nobody is to ask for anything."""

    items: dict[str, HostBlock]


async def sites(store: Store, roster: Roster, part: str) -> list[Site]:
    """Return all sites whose name holds ``part``, those of most channels first."""
    rates, listed, _ = await asyncio.gather(
        store.request_budgets.site_rates(), store.blocked_hosts.all(), roster.look()
    )
    blocked: dict[str, list[str]] = {}
    for name in sorted(listed):
        blocked.setdefault(site_of(name), []).append(name)
    wanted = part.casefold().strip()
    channels, subscriptions, failing = Counter[str](), Counter[str](), Counter[str]()
    for row in roster.rows.values():
        channels[row.site] += 1
        subscriptions[row.site] += roster.subscribers(row.id)
        failing[row.site] += row.failing_since_s > 0
    names = sorted(
        (name for name in {*channels, *rates, *blocked} if wanted in name), key=lambda name: (-channels[name], name)
    )
    return [
        Site(name, channels[name], subscriptions[name], failing[name], rates.get(name), tuple(blocked.get(name, ())))
        for name in names
    ]


@operation(
    "GET",
    "/hosts",
    look("channels"),
    422,
    query=(
        Parameter("q", "query", "Only sites whose name holds this text."),
        CURSOR,
        LIMIT,
    ),
)
async def get_hosts(request: web.Request) -> Hosts:
    """Publishers' sites, those of most channels first, a page at a time."""
    found = await sites(request.app[STORE], request.app[ROSTER], request.query.get("q", ""))
    rest = _after(found, request.query.get("cursor", ""))
    count = limit(request, _PAGE)
    following = f"{rest[count - 1].channels} {rest[count - 1].site}" if len(rest) > count else ""
    return Hosts(tuple(rest[:count]), following)


def _after(found: Sequence[Site], cursor: str) -> Sequence[Site]:
    """Return the sites behind the one that a cursor names, by where it stood: it may have more channels by now."""
    if not cursor:
        return found
    channels, _, name = cursor.partition(" ")
    if not (channels.isdecimal() and channels.isascii() and len(channels) <= _MOST_DIGITS):
        raise UserError(FOREIGN_CURSOR)
    return [site for site in found if (-site.channels, site.site) > (-int(channels), name)]


@operation("GET", "/blocked-hosts", look("channels"))
async def get_blocked_hosts(request: web.Request) -> Blocked:
    """The hosts that nobody is to ask for anything."""
    return Blocked(await request.app[STORE].blocked_hosts.all())


_WITH_DOMAINS = "A publisher's host, as in a URL; a domain stands for all its hosts."


@operation("PUT", "/hosts/{host}/block", act("channels"), 429, host_meaning=_WITH_DOMAINS)
async def block_host(request: web.Request, wanted: SetBlock) -> Blocked:
    """Have nobody ask a host, or all hosts of a domain, for anything, and refuse new subscriptions there."""
    await _block(request, _host_in(request.match_info["host"]), wanted.why)
    return await get_blocked_hosts(request)


@operation("DELETE", "/hosts/{host}/block", act("channels"), 404, 422, host_meaning=_WITH_DOMAINS)
async def allow_host(request: web.Request) -> None:
    """Let a host that was blocked be asked again."""
    name = request[DETAIL] = _host_in(request.match_info["host"])
    if not await request.app[STORE].blocked_hosts.remove(name):
        raise web.HTTPNotFound(text=f"{name} is not blocked. What is blocked, is listed by its own name.")


@operation("GET", "/hosts/{host}", look("channels"), 422)
async def get_host(request: web.Request) -> Host:
    """How often a host may be asked, and whether an admin or the settings said so."""
    site = _site(request)
    set_per_s = await request.app[STORE].request_budgets.site_rate(site)
    usual_per_s = request.app[SETTINGS].host_requests_per_s
    return Host(site, usual_per_s if set_per_s is None else set_per_s, set=set_per_s is not None)


@operation("PUT", "/hosts/{host}", act("channels"))
async def put_host(request: web.Request, wanted: SetHost) -> Host:
    """Set how often a host, with all others of its site, may be asked from now on."""
    await request.app[STORE].request_budgets.set_site_rate(_site(request), wanted.requests_per_s)
    return await get_host(request)


@operation("DELETE", "/hosts/{host}", act("channels"), 422)
async def delete_host(request: web.Request) -> None:
    """Have the settings decide again how often a host may be asked."""
    await request.app[STORE].request_budgets.clear_site_rate(_site(request))


async def page(request: web.Request) -> web.Response:
    """List sites, those of most channels first."""
    query = request.query.get("q", "")[:200]
    found = await sites(request.app[STORE], request.app[ROSTER], query)
    number, pages = page_number(request.query, len(found), _PAGE)
    return render(
        request,
        "hosts.html",
        query=query,
        found=found[(number - 1) * _PAGE : number * _PAGE],
        total=len(found),
        number=number,
        pages=pages,
        link=lambda page: f"/hosts?{urlencode({'page': page, 'q': query})}",
        usual_per_s=request.app[SETTINGS].host_requests_per_s,
    )


async def one(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Show one site."""
    store, roster, site = request.app[STORE], request.app[ROSTER], _site(request)
    about = await _answers(store, roster, site)
    rows = sorted(_rows_of(roster, site), key=lambda row: row.folded)
    return render(
        request,
        "host.html",
        status,
        site=site,
        about=about,
        channels=await views(store, [row.id for row in rows[:_PAGE]]),
        total=len(rows),
        failing=sum(row.failing_since_s > 0 for row in rows),
        subscriptions=sum(roster.subscribers(row.id) for row in rows),
        set_per_s=await store.request_budgets.site_rate(site),
        usual_per_s=request.app[SETTINGS].host_requests_per_s,
        blocked={name: found for name, found in (await store.blocked_hosts.all()).items() if site_of(name) == site},
        error=error,
    )


@shown_on(one)
async def change(request: web.Request) -> web.Response:
    """Set how often a site may be asked, or have the settings say so again; pause or resume all its channels."""
    store, site, form = request.app[STORE], _site(request), await form_of(request)
    action, text = form.get("action", ""), form.get("requests_per_s", "")[:20]
    request[DETAIL] = f"{action} {text}".strip()
    if action in {"pause", "resume"}:
        await request.app[ROSTER].look()
        ids = [row.id for row in _rows_of(request.app[ROSTER], site)][:_MOST_PAUSED]
        await store.admin_settings.pause(ids, UNTIL_RESUMED_S if action == "pause" else 0)
        await request.app[ROSTER].again(ids)
    elif action == "usual":
        await store.request_budgets.clear_site_rate(site)
    else:
        await store.request_budgets.set_site_rate(site, _rate(text))
    raise web.HTTPSeeOther(f"/hosts/{site}")


@shown_on(one)
async def block(request: web.Request) -> web.Response:
    """Have nobody ask a host, or all hosts of a site, for anything."""
    site, form = _site(request), await form_of(request)
    name = _host_in(form.get("name", ""))
    if site_of(name) != site:
        raise UserError(f"“{name}” is no host of {site}.")
    await _block(request, name, form.get("why", "")[:_LONGEST_WHY])
    raise web.HTTPSeeOther(f"/hosts/{site}#blocked")


async def allow(request: web.Request) -> web.Response:
    """Let a host that was blocked be asked again."""
    name = request[DETAIL] = (await form_of(request)).get("name", "")[:_LONGEST_NAME]
    if not await request.app[STORE].blocked_hosts.remove(name):
        return await one(request, 404, error=f"“{name}” is not blocked, or not any more.")
    raise web.HTTPSeeOther(f"/hosts/{_site(request)}#blocked")


async def _block(request: web.Request, name: str, why: str) -> None:
    request[DETAIL] = f"{name}: {why}"
    await request.app[STORE].blocked_hosts.add(name, HostBlock(request[VISITOR].name, request.app[CLOCK].wall_s(), why))


async def _answers(store: Store, roster: Roster, site: str) -> dict[str, object]:
    """Return how a site answered the last polls that are kept of some of its channels."""
    await roster.look()
    ids: list[ChannelId] = [row.id for row in _rows_of(roster, site)][:_POLLS_OF]
    found: list[PollResult] = [poll for polls in await store.channels.polls_of_many(ids, POLLS_KEPT) for poll in polls]
    statuses = Counter(poll.status for poll in found)
    return {
        "channels": len(ids),
        "polls": len(found),
        "outcomes": dict(Counter(poll.outcome for poll in found).most_common()),
        "not_modified": statuses[304],
        "busy": statuses[_BUSY],
        "mean_s": sum(poll.took_s for poll in found) / len(found) if found else 0.0,
    }


def _rows_of(roster: Roster, site: str) -> list[Row]:
    return [row for row in roster.rows.values() if row.site == site]


def _rate(text: str) -> float:
    try:
        return msgspec.convert({"requests_per_s": text}, SetHost, strict=False).requests_per_s
    except msgspec.ValidationError as error:
        raise UserError(f"Requests per second are a number from {_RAREST_PER_S:g} to {_MOST_OFTEN_PER_S:g}.") from error


def _site(request: web.Request) -> str:
    """Return the site of the host in the path. Raises :class:`UserError` if it is no host."""
    return site_of(_host_in(request.match_info["host"]))


def _host_in(text: str) -> str:
    """Return a host as URLs have it. Raises :class:`UserError` if it is none."""
    host = text[:_LONGEST_NAME].strip("[]")
    return urlsplit(canonical_url(f"https://{f'[{host}]' if ':' in host else host}/")).hostname or ""
