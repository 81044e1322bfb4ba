"""Publishers' sites as pages: a list, and one with how often it may be asked."""

from typing import Final
from urllib.parse import urlencode, urlsplit

from aiohttp import web

from service.console.audited import DETAIL
from service.console.bulk import UNTIL_RESUMED_S
from service.console.catalogue import views
from service.console.hosts import PAGE, answers, sites
from service.console.site import CLOCK, ROSTER, SETTINGS, STORE, VISITOR, render
from service.errors import UserError
from service.feeds.urls import canonical_url
from service.net.sites import site_of
from service.store.blocks import Block

LONGEST_NAME: Final = 253
LONGEST_WHY: Final = 200
_RAREST_PER_S: Final = 0.001
_MOST_OFTEN_PER_S: Final = 100.0
_MOST_PAUSED: Final = 5_000


async def page(request: web.Request) -> web.Response:
    """List sites, those of most channels first."""
    query = request.query.get("q", "")[:200]
    found = await sites(request.app[STORE], request.app[ROSTER], query)
    pages = max(1, -(-len(found) // PAGE))
    text = request.query.get("page", "1")[:9]
    number = min(max(1, int(text) if text.isdecimal() else 1), pages)
    return render(
        request,
        "hosts.html",
        query=query,
        found=found[(number - 1) * PAGE : number * PAGE],
        total=len(found),
        number=number,
        pages=pages,
        link=lambda page: f"/hosts?{urlencode({'page': page, 'q': query})}",
        usual_per_s=request.app[SETTINGS].host_requests_per_s,
    )


async def one(request: web.Request) -> web.Response:
    """Show one site."""
    return await _one(request, site_in(request))


async def change(request: web.Request) -> web.Response:
    """Set how often a site may be asked, or have the settings say so again; pause or resume all its channels."""
    store, site, form = request.app[STORE], site_in(request), await request.post()
    action, text = str(form.get("action", "")), str(form.get("requests_per_s", "")).strip()[:20]
    request[DETAIL] = f"{action} {text}".strip()
    if action in {"pause", "resume"}:
        await request.app[ROSTER].look()
        ids = [row.id for row in request.app[ROSTER].rows.values() if row.site == site][:_MOST_PAUSED]
        await store.remarks.pause(ids, UNTIL_RESUMED_S if action == "pause" else 0)
        await request.app[ROSTER].again(ids)
    elif action == "usual":
        await store.hosts.forget_rate(site)
    else:
        try:
            await store.hosts.set_rate(site, _rate(text))
        except UserError as error:
            return await _one(request, site, 422, error=str(error))
    raise web.HTTPSeeOther(f"/hosts/{site}")


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not _RAREST_PER_S <= rate <= _MOST_OFTEN_PER_S:
        raise UserError(f"Requests per second are a number from {_RAREST_PER_S:g} to {_MOST_OFTEN_PER_S:g}.")
    return rate


def site_in(request: web.Request) -> str:
    """Return the site of the host that stands in a path. Raises :class:`UserError` for what is none."""
    return site_of(host_in(request.match_info["host"]))


def host_in(text: str) -> str:
    """Return a host as URLs have it. Raises :class:`UserError` for what is none."""
    host = text.strip()[:LONGEST_NAME].strip("[]")
    return urlsplit(canonical_url(f"https://{f'[{host}]' if ':' in host else host}/")).hostname or ""


async def block(request: web.Request) -> web.Response:
    """Have nobody ask a host, or all hosts of a site, for anything."""
    site, form = site_in(request), await request.post()
    name, why = host_in(str(form.get("name", ""))), str(form.get("why", "")).strip()[:LONGEST_WHY]
    if site_of(name) != site:
        return await _one(request, site, 422, error=f"“{name}” is no host of {site}.")
    request[DETAIL] = f"{name}: {why}"
    await request.app[STORE].blocks.add(name, Block(request[VISITOR].name, request.app[CLOCK].wall_s(), why))
    raise web.HTTPSeeOther(f"/hosts/{site}#blocked")


async def allow(request: web.Request) -> web.Response:
    """Let a host that was blocked be asked again."""
    site, name = site_in(request), str((await request.post()).get("name", ""))[:LONGEST_NAME]
    request[DETAIL] = name
    if not await request.app[STORE].blocks.lift(name):
        return await _one(request, site, 404, error=f"“{name}” is not blocked, or not any more.")
    raise web.HTTPSeeOther(f"/hosts/{site}#blocked")


async def _one(request: web.Request, site: str, status: int = 200, *, error: str = "") -> web.Response:
    store, roster = request.app[STORE], request.app[ROSTER]
    about = await answers(store, roster, site)
    rows = sorted((row for row in roster.rows.values() if row.site == site), key=lambda row: row.folded)
    return render(
        request,
        "host.html",
        status,
        site=site,
        about=about,
        channels=await views(store, [row.id for row in rows[:PAGE]]),
        total=len(rows),
        failing=sum(row.failing_since_s > 0 for row in rows),
        subscriptions=sum(roster.subscribers(row.id) for row in rows),
        set_per_s=await store.hosts.rate(site),
        usual_per_s=request.app[SETTINGS].host_requests_per_s,
        blocked={name: found for name, found in (await store.blocks.all()).items() if site_of(name) == site},
        error=error,
    )
