"""The Nodes page and its API operations: the ring of workers, their shares of the channels, loads, and draining.

Draining a worker removes it from the ring, so that others take over its channels.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec
from aiohttp import web

from service.console.api.operations import Operations
from service.console.app_keys import CHANNEL_CACHE, CHANNEL_SEARCH, METRICS, STORE
from service.console.auth.permissions import read_access, write_access
from service.console.charts import draw_ring, find_regions
from service.console.forms import redirect_after
from service.console.middleware.audit_recorder import AUDIT_DETAIL
from service.console.page_rendering import render
from service.console.queries.channel_details import ChannelDetail, read_channel_detail
from service.console.queries.channel_search import ChannelQuery
from service.console.queries.metrics_statistics import Load
from service.model import ChannelId, NodeId, NodeInfo

_MAX_TEXT_CHARS: Final = 200
_COMPONENT_NAMES: Final = {"coronet": "Coronet", "python": "Python", "redis_client": "the Redis client"}

operation = OPERATIONS = Operations()


class Nodes(msgspec.Struct, frozen=True):
    """The live nodes (the workers on the ring), sorted by id, and the drained workers.

    ``drained`` contains the names of the workers that an admin has removed from the ring. ``loads`` maps the ids of
    nodes to the loads of their processes. Processes that do not answer are left out.
    """

    items: tuple[NodeInfo, ...]
    loads: dict[NodeId, Load]
    drained: tuple[str, ...]


@operation("GET", "/nodes", read_access("fleet"))
async def get_nodes(request: web.Request) -> Nodes:
    """List live nodes and drained workers."""
    ring, known = request.app[STORE].ring, request.app[METRICS].loads
    nodes = await ring.nodes()
    loads = {node.id: known[node.metrics_url] for node in nodes if node.metrics_url in known}
    return Nodes(tuple(nodes), loads, tuple(await ring.drained()))


@operation("POST", "/nodes/{node}/drain", write_access("fleet"), 404)
async def drain_node(request: web.Request) -> None:
    """Drain a node: other nodes take over its channels now, and its worker stays out of the ring until restored."""
    ring = request.app[STORE].ring
    node = next((node for node in await ring.nodes() if node.id == request.match_info["node"]), None)
    if node is None:
        raise web.HTTPNotFound(text="There is no such node. It may have left the ring.")
    request[AUDIT_DETAIL] = node.name
    await ring.drain(node)


@operation("POST", "/workers/{worker}/restore", write_access("fleet"), 404)
async def restore_worker(request: web.Request) -> None:
    """Restore a drained worker so that it joins the ring again."""
    worker = request.match_info["worker"]
    request[AUDIT_DETAIL] = worker[:100]
    if not await request.app[STORE].ring.restore(worker):
        raise web.HTTPNotFound(text="There is no drained worker with this name.")


async def page(request: web.Request) -> web.Response:
    """Show the ring, and each node's load and share of the channels.

    If ``channel`` in the URL's query is the id of a channel, or a part of its title or URL, the ring shows the
    channel's wedge: the part of the ring with the nodes that poll the channel (Corona §3.1).
    """
    nodes, _ = await asyncio.gather(get_nodes(request), request.app[CHANNEL_CACHE].refresh())
    text = request.query.get("channel", "").strip()[:_MAX_TEXT_CHARS]
    chosen = await _find_channel(request, text) if text and nodes.items else None
    shares: dict[str, float] = {}
    for owner, start, end in find_regions(nodes.items):
        shares[owner] = shares.get(owner, 0.0) + end - start
    return render(
        request,
        "nodes.html",
        nodes=nodes,
        shares=shares,
        channels=len(request.app[CHANNEL_CACHE].rows),
        versions=_versions(nodes),
        text=text,
        chosen=chosen,
        picture=draw_ring(nodes.items, chosen.channel.id, [node.id for node in chosen.polling_set])
        if chosen
        else draw_ring(nodes.items),
    )


async def _find_channel(request: web.Request, text: str) -> ChannelDetail | None:
    """Return the channel with the id ``text``, or else the first one with ``text`` in its title or URL.

    The result is None if no channel matches.
    """
    ids: Sequence[ChannelId] = [text] if text in request.app[CHANNEL_CACHE].rows else ()
    ids = ids or request.app[CHANNEL_SEARCH].find(ChannelQuery(text=text, sort="title"))
    return await read_channel_detail(request.app[STORE], ids[0]) if ids else None


def _versions(nodes: Nodes) -> list[tuple[str, list[str]]]:
    """Group nodes by the software versions that they run; return pairs (versions, names of nodes).

    Nodes whose process did not report its load are left out.
    """
    by_versions: dict[str, list[str]] = {}
    for node in nodes.items:
        if load := nodes.loads.get(node.id):
            components = load.versions.items()
            text = ", ".join(f"{_COMPONENT_NAMES.get(name, name)} {version}" for name, version in components)
            by_versions.setdefault(text, []).append(node.name)
    return sorted(by_versions.items())


drain = redirect_after(drain_node, "/nodes")
restore = redirect_after(restore_worker, "/nodes")
