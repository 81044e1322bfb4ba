"""The Hosts page and its API operations: sites with their poll results, request limits and pauses.

A site is a registrable domain with all its hosts. Its request limit applies to all its channels together.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final
from urllib.parse import urlencode, urlsplit

import msgspec
from aiohttp import web

from service.console.api.operations import CURSOR, LIMIT, Operations, Parameter
from service.console.app_keys import CHANNEL_CACHE, SETTINGS, STORE
from service.console.auth.permissions import read_access, write_access
from service.console.forms import read_form, redirect_after
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.page_rendering import render
from service.console.pagination import PAGE_SIZE, find_page_start, next_cursor, read_limit, read_page_number
from service.console.queries.channel_cache import ChannelCache
from service.console.queries.channel_details import read_channel_views
from service.console.queries.channel_rows import ChannelRow
from service.console.resources.channels.channel_settings import PAUSE_UNTIL_RESUMED_S
from service.feeds.canonical_urls import canonical_url
from service.model import ChannelId
from service.net.sites_and_networks import site_of
from service.store import Store
from service.store.channels.channels import POLLS_KEPT

_SAMPLED_CHANNELS: Final = 250
_TOO_MANY_REQUESTS: Final = 429
_MAX_HOST_CHARS: Final = 253
_MIN_RATE_PER_S: Final = 0.001
_MAX_RATE_PER_S: Final = 100.0
_MAX_PAUSED: Final = 5_000

operation = OPERATIONS = Operations()


class Site(msgspec.Struct, frozen=True):
    """A site, which is a registrable domain with all its hosts.

    - ``channels`` is the number of channels of the site, and ``failing`` the number of failing ones.
    - ``subscriptions`` is the number of subscriptions to these channels.
    - ``requests_per_s`` is the request limit that an admin has set; null means the default.
    - ``blocked`` are the blocked hosts of the site. If the whole site is blocked, they include the site's name.
    """

    site: str
    channels: int
    subscriptions: int
    failing: int
    requests_per_s: float | None
    blocked: tuple[str, ...]


class Hosts(msgspec.Struct, frozen=True):
    """One page of the list of sites, those with the most channels first.

    ``next`` is the cursor of the next page; "" means that this is the last page.
    """

    items: tuple[Site, ...]
    next: str


class SetHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A limit on the requests per second that the whole fleet sends to a site.

    The limits on requests to a single network apply as well.
    """

    requests_per_s: Annotated[float, msgspec.Meta(ge=_MIN_RATE_PER_S, le=_MAX_RATE_PER_S)]


class Host(msgspec.Struct, frozen=True):
    """The request limit of a site, which is a registrable domain with all its hosts.

    ``set`` is true if an admin has set the limit, and false if it is the default. ``paused_s`` is the number of seconds
    for which the publisher wants no further requests.
    """

    site: str
    requests_per_s: float
    set: bool
    paused_s: float


async def _find_sites(request: web.Request) -> list[Site]:
    """Return all sites whose name contains the URL query's ``q``, those with the most channels first."""
    store, cache, text = request.app[STORE], request.app[CHANNEL_CACHE], request.query.get("q", "").casefold().strip()
    rates, blocks, _ = await asyncio.gather(
        store.request_budgets.site_rates(), store.blocked_hosts.all(), cache.refresh()
    )
    blocked: dict[str, list[str]] = {}
    for name in sorted(blocks):
        blocked.setdefault(site_of(name), []).append(name)
    channels, subscriptions, failing = Counter[str](), Counter[str](), Counter[str]()
    for row in cache.rows.values():
        channels[row.site] += 1
        subscriptions[row.site] += cache.subscribers(row.id)
        failing[row.site] += row.failing_since_s > 0
    names = sorted(
        (name for name in {*channels, *rates, *blocked} if text in name), key=lambda name: (-channels[name], name)
    )
    return [
        Site(name, channels[name], subscriptions[name], failing[name], rates.get(name), tuple(blocked.get(name, ())))
        for name in names
    ]


@operation(
    "GET",
    "/hosts",
    read_access("channels"),
    422,
    query=(
        Parameter("q", "query", "Only sites whose name contains this text."),
        CURSOR,
        LIMIT,
    ),
)
async def get_hosts(request: web.Request) -> Hosts:
    """List sites, those with the most channels first."""
    found = await _find_sites(request)
    names = [site.site for site in found]
    start = find_page_start(names, request.query.get("cursor", ""))
    end = start + read_limit(request)
    return Hosts(tuple(found[start:end]), next_cursor(names, end))


@operation("GET", "/hosts/{host}", read_access("channels"), 422)
async def get_host(request: web.Request) -> Host:
    """Get the request limit of a host's site."""
    site, budgets = requested_site(request), request.app[STORE].request_budgets
    set_per_s, paused_s = await asyncio.gather(budgets.site_rate(site), budgets.site_paused_s(site))
    default_per_s = request.app[SETTINGS].host_requests_per_s
    return Host(site, default_per_s if set_per_s is None else set_per_s, set=set_per_s is not None, paused_s=paused_s)


@operation("PUT", "/hosts/{host}", write_access("channels"))
async def put_host(request: web.Request, body: SetHost) -> Host:
    """Set the request limit of a host's site."""
    request[AUDIT_DETAIL] = f"{body.requests_per_s:g}"
    await request.app[STORE].request_budgets.set_site_rate(requested_site(request), body.requests_per_s)
    return await get_host(request)


@operation("DELETE", "/hosts/{host}", write_access("channels"), 422)
async def delete_host(request: web.Request) -> None:
    """Reset the request limit of a host's site to the default."""
    await request.app[STORE].request_budgets.clear_site_rate(requested_site(request))


async def page(request: web.Request) -> web.Response:
    """Show the list of sites, those with the most channels first."""
    query, found = request.query.get("q", ""), await _find_sites(request)
    number, pages = read_page_number(request.query, len(found), PAGE_SIZE)
    return render(
        request,
        "hosts.html",
        query=query,
        sites=found[(number - 1) * PAGE_SIZE : number * PAGE_SIZE],
        total=len(found),
        number=number,
        pages=pages,
        link=lambda page: f"/hosts?{urlencode({'page': page, 'q': query})}",
    )


async def site_page(request: web.Request, status: int = 200, *, error: str = "") -> web.Response:
    """Show one site. ``error`` is the message to show if a change failed."""
    store, cache, site = request.app[STORE], request.app[CHANNEL_CACHE], requested_site(request)
    await cache.refresh()
    rows = sorted(_rows_of(cache, site), key=lambda row: row.search_text)
    return render(
        request,
        "host.html",
        status,
        site=site,
        results=await _poll_results(store, [row.id for row in rows[:_SAMPLED_CHANNELS]]),
        channels=await read_channel_views(store, [row.id for row in rows[:PAGE_SIZE]]),
        total=len(rows),
        failing=sum(row.failing_since_s > 0 for row in rows),
        subscriptions=sum(cache.subscribers(row.id) for row in rows),
        limit=await get_host(request),
        blocked={name: block for name, block in (await store.blocked_hosts.all()).items() if site_of(name) == site},
        error=error,
    )


set_limit = redirect_after(
    put_host,
    "/hosts/{host}",
    site_page,
    f"Enter requests per second from {_MIN_RATE_PER_S:g} to {_MAX_RATE_PER_S:g}.",
)
reset_limit = redirect_after(delete_host, "/hosts/{host}", site_page)


async def pause(request: web.Request) -> web.Response:
    """Pause all channels of a site, or resume them."""
    store, cache, site = request.app[STORE], request.app[CHANNEL_CACHE], requested_site(request)
    resumes = "resume" in await read_form(request)
    request[AUDIT_DETAIL] = "resume" if resumes else "pause"
    await cache.refresh()
    ids = [row.id for row in _rows_of(cache, site)][:_MAX_PAUSED]
    await store.admin_settings.pause(ids, 0 if resumes else PAUSE_UNTIL_RESUMED_S)
    await cache.reload(ids)
    if resumes:
        await store.request_budgets.end_site_pause(site)
    raise web.HTTPSeeOther(f"/hosts/{site}")


async def _poll_results(store: Store, ids: Sequence[ChannelId]) -> dict[str, object]:
    """Return statistics about the last recorded polls of the channels with these ids.

    The keys of the result are the names that the template uses.
    """
    results = [poll for polls in await store.channels.polls_of_many(ids, POLLS_KEPT) for poll in polls]
    statuses = Counter(poll.status for poll in results)
    return {
        "channels": len(ids),
        "polls": len(results),
        "outcomes": dict(Counter(poll.outcome for poll in results).most_common()),
        "not_modified": statuses[304],
        "too_many_requests": statuses[_TOO_MANY_REQUESTS],
        "mean_s": sum(poll.took_s for poll in results) / len(results) if results else 0.0,
    }


def _rows_of(cache: ChannelCache, site: str) -> list[ChannelRow]:
    return [row for row in cache.rows.values() if row.site == site]


def requested_site(request: web.Request) -> str:
    """Return the site of the host named in the request's path. Raises :class:`UserError` for an invalid name."""
    return site_of(parse_host(request.match_info["host"]))


def parse_host(text: str) -> str:
    """Return the host name ``text`` in its canonical form. Raises :class:`UserError` if it is invalid."""
    host = text[:_MAX_HOST_CHARS].strip("[]")
    return urlsplit(canonical_url(f"https://{f'[{host}]' if ':' in host else host}/")).hostname or ""
