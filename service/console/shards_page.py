"""Where subscriptions lie: the tree of key groups with loads, and what moves."""

from aiohttp import web

from service import shards
from service.console.audited import DETAIL
from service.console.figures import growth, moves
from service.console.shards_svg import shards_svg
from service.console.site import PULSE, SETTINGS, STORE, render
from service.errors import BadKey, StepRefused


async def page(request: web.Request) -> web.Response:
    """Show the tree of key groups."""
    return await _page(request)


async def change(request: web.Request) -> web.Response:
    """Split a leaf, or merge the halves of a group, whatever their loads."""
    form = await request.post()
    label, action = str(form.get("label", "")).strip()[:64], str(form.get("action", ""))
    request[DETAIL] = f"{action} {label}"
    try:
        done = await (shards.merge if action == "merge" else shards.split)(request.app[STORE], label)
    except (BadKey, StepRefused) as error:
        return await _page(request, 422, error=str(error))
    return await _page(request, done=done)


async def _page(request: web.Request, status: int = 200, *, done: str = "", error: str = "") -> web.Response:
    found = await shards.show(request.app[STORE], request.app[SETTINGS])
    samples = request.app[PULSE].samples
    moved = moves(growth(samples[0].counts, samples[-1].counts)) if samples else {}
    return render(
        request, "shards.html", status, found=found, picture=shards_svg(found), moved=moved, done=done, error=error
    )
