"""A worker that answers requests of bots from a script, without fetching anything."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

import msgspec

from service.errors import CoronetError, NoWorker, to_fault
from service.model import NodeInfo
from service.store import Store
from service.store.coordination.worker_requests import ErrorReply, ProbeReply, ProbeRequest, WorkerReply, WorkerRequest
from tests.support.channels import make_channel

Script = Mapping[str, ProbeReply | CoronetError | None]
"""Canonical URL → the reply to a probe; None stands for a feed, for which a channel with one entry is created.

A probe of a page always creates a page channel.
"""


@contextlib.asynccontextmanager
async def scripted_worker(store: Store, script: Script) -> AsyncIterator[NodeInfo]:
    """Run the only worker of the ring, which replies to probes by ``script``, and to other URLs with an error."""
    me = await store.ring.join("scripted", "", 60.0, lambda _: "0" * 40)
    answering = asyncio.create_task(_answer(store, me, script))
    try:
        yield me
    finally:
        answering.cancel()
        await asyncio.gather(answering, return_exceptions=True)
        await store.ring.leave(me)


async def _answer(store: Store, me: NodeInfo, script: Script) -> None:
    after = "0"
    while True:
        letters, after = await store.node_inboxes.read(me.id, after)
        for letter in letters:
            if letter.kind == "ask":
                ask = msgspec.msgpack.decode(letter.payload, type=WorkerRequest)
                await store.worker_requests.reply(ask, await _reply_to(store, ask, script))


async def _reply_to(store: Store, ask: WorkerRequest, script: Script) -> WorkerReply:
    if not isinstance(ask.body, ProbeRequest):
        return ErrorReply(to_fault(NoWorker("This worker only probes.")))
    if ask.body.as_page:
        return ProbeReply(await make_channel(store, ask.body.url, kind="page"))
    found = script.get(ask.body.url, NoWorker("This worker knows no such URL."))
    if isinstance(found, CoronetError):
        return ErrorReply(to_fault(found))
    if found is None:
        channel = await make_channel(store, ask.body.url)
        return ProbeReply(channel, await store.channels.latest(channel.id, 1))
    return found
