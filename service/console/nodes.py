"""The ring of nodes, as a picture and as a table; nodes drain, and come back."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from aiohttp import web

from service.console.audited import DETAIL
from service.console.figures import Load
from service.console.ring_svg import regions, ring_svg
from service.console.site import PULSE, ROSTER, STORE, render
from service.model import NodeInfo

_NAMED: Final = {"coronet": "Coronet", "python": "Python", "redis_client": "the Redis client"}


async def page(request: web.Request) -> web.Response:
    """Show who is on the ring, what part of the id space each owns, and how each is doing."""
    ring, roster = request.app[STORE].ring, request.app[ROSTER]
    nodes, drained, _ = await asyncio.gather(ring.view(), ring.drained(), roster.look())
    shares: dict[str, float] = {}
    for owner, start, end in regions(nodes):
        shares[owner] = shares.get(owner, 0.0) + end - start
    return render(
        request,
        "nodes.html",
        nodes=nodes,
        drained=drained,
        shares=shares,
        channels=len(roster.rows),
        loads=request.app[PULSE].loads,
        versions=_versions(nodes, request.app[PULSE].loads),
        picture=ring_svg(nodes),
    )


def _versions(nodes: Sequence[NodeInfo], loads: Mapping[str, Load]) -> list[tuple[str, list[str]]]:
    """Return what nodes run, as far as they say so, each with the names of those that run it."""
    running: dict[str, list[str]] = {}
    for node in nodes:
        if load := loads.get(node.metrics_url):
            said = ", ".join(f"{_NAMED.get(what, what)} {number}" for what, number in load.versions.items())
            running.setdefault(said, []).append(node.name)
    return sorted(running.items())


async def drain(request: web.Request) -> web.Response:
    """Have a node leave, its channels taken over at once, and its worker stay out until it is restored."""
    ring = request.app[STORE].ring
    node = next((node for node in await ring.view() if node.id == request.match_info["node"]), None)
    if node is None:
        raise web.HTTPNotFound(text="There is no such node. It may have left.")
    request[DETAIL] = node.name
    await ring.drain(node)
    raise web.HTTPSeeOther("/nodes")


async def restore(request: web.Request) -> web.Response:
    """Let a worker that was drained join again."""
    name = str((await request.post()).get("worker", ""))
    request[DETAIL] = name[:100]
    if not await request.app[STORE].ring.restore(name):
        raise web.HTTPNotFound(text="No worker of that name is kept out.")
    raise web.HTTPSeeOther("/nodes")
