"""The Shards page and its API operations: the tree of key groups with their loads, and manual splits and merges."""

from aiohttp import web

from service.console.api.operations import ActionResult, Operations
from service.console.app_keys import METRICS, SETTINGS, STORE
from service.console.auth.permissions import read_access, write_access
from service.console.forms import read_form, redisplay_on_error
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.page_rendering import render
from service.console.queries.metrics_statistics import compute_growth, count_key_group_moves
from service.operations import shard_administration
from service.operations.shard_administration import Shards

operation = OPERATIONS = Operations()


@operation("GET", "/shards", read_access("fleet"))
async def get_shards(request: web.Request) -> Shards:
    """Get the tree of key groups, with the keyspace, subscription count and load of each group.

    A key group consists of the subscriptions whose keys begin with the same bits. A keyspace is a partition of the
    store.
    """
    return await shard_administration.read_shards(request.app[STORE], request.app[SETTINGS])


@operation("POST", "/shards/{label}/split", write_access("fleet"), 422)
async def split_shard(request: web.Request) -> ActionResult:
    """Split a key group now, whatever its load."""
    return ActionResult(await shard_administration.split(request.app[STORE], request.match_info["label"]))


@operation("POST", "/shards/{label}/merge", write_access("fleet"), 422)
async def merge_shard(request: web.Request) -> ActionResult:
    """Merge the two halves of a key group now, whatever their loads."""
    return ActionResult(await shard_administration.merge(request.app[STORE], request.match_info["label"]))


async def page(request: web.Request, status: int = 200, *, done: str = "", error: str = "") -> web.Response:
    """Show the tree of key groups.

    ``done`` is the message to show after a successful action, ``error`` the one to show after a failed action.
    """
    groups, samples = await get_shards(request), request.app[METRICS].samples
    moves = count_key_group_moves(compute_growth(samples[0].counts, samples[-1].counts)) if samples else {}
    return render(request, "shards.html", status, groups=groups, moves=moves, done=done, error=error)


@redisplay_on_error(page)
async def change(request: web.Request) -> web.Response:
    """Split a key group, or merge its two halves, whatever the load."""
    form = await read_form(request)
    label, action = form.get("label", "")[:64], form.get("action", "")
    request[AUDIT_DETAIL] = f"{action} {label}"
    done = await (shard_administration.merge if action == "merge" else shard_administration.split)(
        request.app[STORE], label
    )
    return await page(request, done=done)
