"""The API's part about the fleet: its aims, its nodes, and where subscriptions lie."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from service import shards
from service.console.access import act, look, rule
from service.console.audited import DETAIL, record
from service.console.figures import Load
from service.console.openapi import BODY, Operation, Parameter
from service.console.policy import PolicyNow, WhatIf, policy_now, undone, what_if
from service.console.site import PULSE, ROSTER, SETTINGS, STORE, VISITOR
from service.console.wire import answer, body
from service.corona.policy import Aims
from service.errors import UserError
from service.model import NodeId, NodeInfo
from service.shards import Shards


class SetPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to aim at; null for what the settings say.

    ``seen`` is the revision that this was decided upon: if there is a later one, that stays. Null overrides any.
    """

    aims: Aims | None
    seen: int | None = None


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


async def get_policy(request: web.Request) -> web.Response:
    """What the fleet aims at, and the latest changes of that."""
    return answer(await policy_now(request.app[STORE], request.app[SETTINGS]))


async def put_policy(request: web.Request) -> web.Response:
    """Change what the fleet aims at."""
    wanted = await body(request, SetPolicy)
    request[DETAIL] = msgspec.json.encode(wanted.aims).decode()
    return await _aim(request, wanted.aims, wanted.seen)


async def undo_policy(request: web.Request) -> web.Response:
    """Undo the last change of the fleet's aims."""
    now = await policy_now(request.app[STORE], request.app[SETTINGS])
    possible, aims = undone(now.history)
    if not possible:
        raise UserError("There is no change to undo.")
    return await _aim(request, aims, now.revision)


async def weigh_policy(request: web.Request) -> web.Response:
    """Tell what other aims would come to on the present channels; nothing is changed."""
    aims = await body(request, Aims)
    return answer(await what_if(request.app[STORE], request.app[SETTINGS], request.app[ROSTER], aims))


async def get_nodes(request: web.Request) -> web.Response:
    """The living nodes, and the workers that are kept out."""
    ring, told = request.app[STORE].ring, request.app[PULSE].loads
    nodes = await ring.view()
    loads = {node.id: told[node.metrics_url] for node in nodes if node.metrics_url in told}
    return answer(Nodes(tuple(nodes), loads, tuple(await ring.drained())))


async def drain_node(request: web.Request) -> web.Response:
    """Have a node leave, its channels taken over at once, and its worker stay out until it is restored."""
    ring = request.app[STORE].ring
    node = next((node for node in await ring.view() if node.id == request.match_info["node"]), None)
    if node is None:
        raise web.HTTPNotFound(text="There is no such node. It may have left.")
    request[DETAIL] = node.name
    await ring.drain(node)
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def restore_worker(request: web.Request) -> web.Response:
    """Let a worker that was drained join again."""
    if not await request.app[STORE].ring.restore(request.match_info["worker"]):
        raise web.HTTPNotFound(text="No worker of that name is kept out.")
    return web.Response(status=HTTPStatus.NO_CONTENT)


async def get_shards(request: web.Request) -> web.Response:
    """The tree of key groups in which subscriptions lie, with loads, sizes and keyspaces."""
    return answer(await shards.show(request.app[STORE], request.app[SETTINGS]))


async def split_shard(request: web.Request) -> web.Response:
    """Split a leaf of the tree now, whatever its load."""
    return answer(Step(await shards.split(request.app[STORE], request.match_info["label"])))


async def merge_shard(request: web.Request) -> web.Response:
    """Merge the halves of a group now, whatever their loads."""
    return answer(Step(await shards.merge(request.app[STORE], request.match_info["label"])))


async def accept_store(request: web.Request) -> web.Response:
    """Go on with the store as it is, although it lost data or has another fleet's."""
    visitor = request[VISITOR]
    await request.app[STORE].identity.accept()
    await record(request, visitor.name, "Go on with the store as it is.", visitor.key)
    return answer(Step("The store is accepted. Every program goes on with what is there within a few seconds."))


async def _aim(request: web.Request, aims: Aims | None, seen: int | None) -> web.Response:
    if not await request.app[STORE].policy.set(aims, by=request[VISITOR].name, seen=seen):
        raise web.HTTPConflict(
            text="Somebody else has changed the aims meanwhile. Look at them before you change them."
        )
    return await get_policy(request)


_NODE = Parameter("node", "path", "A node's id.")
_WORKER = Parameter("worker", "path", "A worker's name, as its nodes have it.")
_LABEL = Parameter("label", "path", "A key group's label, like `01*`.")

OPERATIONS: Final[Sequence[Operation]] = (
    Operation("GET", "/policy", look("fleet"), get_policy, {200: PolicyNow}),
    Operation("PUT", "/policy", rule("fleet"), put_policy, {200: PolicyNow}, body=SetPolicy, problems=(409, *BODY)),
    Operation("POST", "/policy/undo", rule("fleet"), undo_policy, {200: PolicyNow}, problems=(409, 422)),
    Operation("POST", "/policy/what-if", look("fleet"), weigh_policy, {200: WhatIf}, body=Aims, problems=BODY),
    Operation("POST", "/store/accept", rule("fleet"), accept_store, {200: Step}),
    Operation("GET", "/nodes", look("fleet"), get_nodes, {200: Nodes}),
    Operation(
        "POST", "/nodes/{node}/drain", act("fleet"), drain_node, {204: None}, parameters=(_NODE,), problems=(404,)
    ),
    Operation(
        "POST",
        "/workers/{worker}/restore",
        act("fleet"),
        restore_worker,
        {204: None},
        parameters=(_WORKER,),
        problems=(404,),
    ),
    Operation("GET", "/shards", look("fleet"), get_shards, {200: Shards}),
    Operation(
        "POST", "/shards/{label}/split", act("fleet"), split_shard, {200: Step}, parameters=(_LABEL,), problems=(422,)
    ),
    Operation(
        "POST", "/shards/{label}/merge", act("fleet"), merge_shard, {200: Step}, parameters=(_LABEL,), problems=(422,)
    ),
)
