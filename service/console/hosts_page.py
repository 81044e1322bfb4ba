"""Publishers' sites as pages: a list, and one with how often it may be asked."""

from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from service.console.audited import DETAIL
from service.console.bulk import UNTIL_RESUMED_S
from service.console.catalogue import views
from service.console.hosts import PAGE, answers, sites
from service.console.site import ROSTER, SETTINGS, STORE, render
from service.errors import UserError
from service.feeds.urls import canonical_url
from service.net.sites import site_of

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
        usual_per_s=request.app[SETTINGS].host_requests_per_s,
    )


async def one(request: web.Request) -> web.Response:
    """Show one site."""
    return await _one(request, _site(request))


async def change(request: web.Request) -> web.Response:
    """Set how often a site may be asked, or have the settings say so again; pause or resume all its channels."""
    store, site, form = request.app[STORE], _site(request), await request.post()
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


def _site(request: web.Request) -> str:
    host = request.match_info["host"]
    return site_of(urlsplit(canonical_url(f"https://{f'[{host}]' if ':' in host else host}/")).hostname or "")


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
        error=error,
    )
