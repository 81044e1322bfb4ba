"""From a versioned delta to the outbox of everyone who is subscribed, resumable at any point.

The cursor is kept with the channel, fenced by the owner's epoch. Doing a page twice queues nothing
twice, so a crash costs at most one repeated page.
"""

import time

from service.feeds.parts import parts
from service.model import ChannelId
from service.store import Store
from service.tracing import TRACING
from workers.hits import Hits

PAGE = 500


async def fan_out(store: Store, cid: ChannelId, epoch: int, hits: Hits) -> bool:
    """Queue every version that is not fully fanned out, in order; False if another node owns the channel now.

    First for subscribers, then for those whose standing queries it meets, by ``hits``; last, who publishes public
    channels is told that there is something.

    Raises :class:`service.errors.StoreUnavailable`; call it again then.
    """
    (state,) = await store.channels.states([cid])
    if state is None or state.epoch != epoch:
        return False
    cursor = state.cursor
    for version in range(state.fanned + 1, state.channel.version + 1):
        if not await _fan_out_version(store, cid, epoch, version, cursor, hits=hits):
            return False
        cursor = ""
    return True


async def _fan_out_version(store: Store, cid: ChannelId, epoch: int, version: int, cursor: str, *, hits: Hits) -> bool:
    delta = await store.channels.delta(cid, version)
    if delta is None or delta.initial:
        return await store.channels.fanned(cid, epoch, version, "")
    given, began_s, people = parts(delta), time.time(), 0
    while True:
        entries, cursor = await store.index.page(cid, cursor, PAGE)
        gone = set(await store.outbox.enqueue([uid for uid, _ in entries], cid, version, time.time(), given))
        people += len(entries) - len(gone)
        if gone:
            await store.index.remove(cid, [entry for entry in entries if entry[0] in gone])
        if not cursor:
            await hits.take_in(delta)
            await store.nodes.changed(cid)
        if not await store.channels.fanned(cid, epoch, version, cursor):
            return False
        if not cursor:
            TRACING.step(delta.trace, "fanned out", began_s, channel=cid, version=version, people=people)
            return True
