"""The fleet: nodes of the ring, the tree of key groups, versions and health; as pages and in the API."""

import asyncio
import platform
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Final

import msgspec
from aiohttp import web

from service.console.audit_middleware import DETAIL, record
from service.console.auth.roles import act, look, rule
from service.console.charts import regions, ring_svg
from service.console.error_responses import shown_on
from service.console.metrics_sampler import Load, growth, moves
from service.console.openapi import Operations
from service.console.rendering import PULSE, ROSTER, SETTINGS, STORE, VISITOR, form_of, render
from service.model import NodeId, NodeInfo
from service.operations import shards
from service.operations.shards import Shards

_NAMED: Final = {"coronet": "Coronet", "python": "Python", "redis_client": "the Redis client"}
_DISTRIBUTIONS: Final = ("coronet", "aiohttp", "jinja2", "msgspec", "numpy", "redis", "slixmpp")
_VENDORED: Final = (("htmx", "4.0.1"), ("Pico CSS", "2.1.1"), ("uPlot", "1.6.32"))
_BEGAN_S: Final = time.monotonic()

operation = OPERATIONS = Operations()


class Nodes(msgspec.Struct, frozen=True):
    """The living nodes, by id, and the names of workers that admins keep out of the ring.

    ``loads`` say, by node, what its process does; those that do not answer are not there.
    """

    items: tuple[NodeInfo, ...]
    loads: dict[NodeId, Load]
    drained: tuple[str, ...]


class Step(msgspec.Struct, frozen=True):
    """What was done, in one sentence."""

    done: str


@operation("POST", "/store/accept", rule("fleet"), without_store=True)
async def accept_store(request: web.Request) -> Step:
    """Go on with the store as it is, although it lost data or has another fleet's."""
    visitor = request[VISITOR]
    await request.app[STORE].identity.accept()
    await record(request, visitor.name, "Go on with the store as it is.", visitor.key)
    return Step("The store is accepted. Every program goes on with what is there within a few seconds.")


@operation("GET", "/nodes", look("fleet"))
async def get_nodes(request: web.Request) -> Nodes:
    """The living nodes, and the workers that are kept out."""
    ring, known = request.app[STORE].ring, request.app[PULSE].loads
    nodes = await ring.nodes()
    loads = {node.id: known[node.metrics_url] for node in nodes if node.metrics_url in known}
    return Nodes(tuple(nodes), loads, tuple(await ring.drained()))


@operation("POST", "/nodes/{node}/drain", act("fleet"), 404)
async def drain_node(request: web.Request) -> None:
    """Have a node leave, its channels taken over at once, and its worker stay out until it is restored."""
    ring = request.app[STORE].ring
    node = next((node for node in await ring.nodes() if node.id == request.match_info["node"]), None)
    if node is None:
        raise web.HTTPNotFound(text="There is no such node. It may have left.")
    request[DETAIL] = node.name
    await ring.drain(node)


@operation("POST", "/workers/{worker}/restore", act("fleet"), 404)
async def restore_worker(request: web.Request) -> None:
    """Let a worker that was drained join again."""
    await _restore(request, request.match_info["worker"])


@operation("GET", "/shards", look("fleet"))
async def get_shards(request: web.Request) -> Shards:
    """The tree of key groups in which subscriptions lie, with loads, sizes and keyspaces."""
    return await shards.read_shards(request.app[STORE], request.app[SETTINGS])


@operation("POST", "/shards/{label}/split", act("fleet"), 422)
async def split_shard(request: web.Request) -> Step:
    """Split a leaf of the tree now, whatever its load."""
    return Step(await shards.split(request.app[STORE], request.match_info["label"]))


@operation("POST", "/shards/{label}/merge", act("fleet"), 422)
async def merge_shard(request: web.Request) -> Step:
    """Merge the halves of a group now, whatever their loads."""
    return Step(await shards.merge(request.app[STORE], request.match_info["label"]))


async def nodes_page(request: web.Request) -> web.Response:
    """Show who is on the ring, what part of the id space each owns, and how each is doing."""
    ring, roster, loads = request.app[STORE].ring, request.app[ROSTER], request.app[PULSE].loads
    nodes, drained, _ = await asyncio.gather(ring.nodes(), ring.drained(), roster.look())
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
        loads=loads,
        versions=_versions(nodes, loads),
        picture=ring_svg(nodes),
    )


def _versions(nodes: Sequence[NodeInfo], loads: Mapping[str, Load]) -> list[tuple[str, list[str]]]:
    """Return what nodes run, as far as they say so, each with the names of those that run it."""
    running: dict[str, list[str]] = {}
    for node in nodes:
        if load := loads.get(node.metrics_url):
            words = ", ".join(f"{_NAMED.get(what, what)} {number}" for what, number in load.versions.items())
            running.setdefault(words, []).append(node.name)
    return sorted(running.items())


async def drain(request: web.Request) -> web.Response:
    """Have a node leave, its channels taken over at once, and its worker stay out until it is restored."""
    await drain_node(request)
    raise web.HTTPSeeOther("/nodes")


async def restore(request: web.Request) -> web.Response:
    """Let a worker that was drained join again."""
    await _restore(request, str((await request.post()).get("worker", "")))
    raise web.HTTPSeeOther("/nodes")


async def _restore(request: web.Request, worker: str) -> None:
    request[DETAIL] = worker[:100]
    if not await request.app[STORE].ring.restore(worker):
        raise web.HTTPNotFound(text="No worker of that name is kept out.")


async def shards_page(request: web.Request, status: int = 200, *, done: str = "", error: str = "") -> web.Response:
    """Show the tree of key groups."""
    found, samples = await get_shards(request), request.app[PULSE].samples
    moved = moves(growth(samples[0].counts, samples[-1].counts)) if samples else {}
    return render(request, "shards.html", status, found=found, moved=moved, done=done, error=error)


@shown_on(shards_page)
async def change_shards(request: web.Request) -> web.Response:
    """Split a leaf, or merge the halves of a group, whatever their loads."""
    form = await form_of(request)
    label, action = form.get("label", "")[:64], form.get("action", "")
    request[DETAIL] = f"{action} {label}"
    done = await (shards.merge if action == "merge" else shards.split)(request.app[STORE], label)
    return await shards_page(request, done=done)


async def about_page(request: web.Request) -> web.Response:
    """Show versions and health."""
    store = request.app[STORE]
    began_s = time.monotonic()
    await store.ping()
    answered_s = time.monotonic() - began_s
    nodes, bots = await asyncio.gather(store.ring.nodes(), store.bot_endpoints.metrics_urls())
    versions = [(name, version(name)) for name in _DISTRIBUTIONS]
    return render(
        request,
        "about.html",
        versions=[*versions, ("Python", platform.python_version()), *_VENDORED],
        answered_s=answered_s,
        nodes=len(nodes),
        bots=len(bots),
        processes=len(request.app[PULSE].loads),
        channels=len(request.app[ROSTER].rows),
        settings=request.app[SETTINGS],
        running_s=time.monotonic() - _BEGAN_S,
    )
