"""Batches come to their end, however long Redis is away."""

import asyncio
from collections.abc import Sequence

from service.errors import StoreUnavailable
from service.model import UserId
from service.store.outbox import MessageId, Outbox

_RETRY_S = 0.5

_Pairs = Sequence[tuple[UserId, MessageId]]


async def completed(outbox: Outbox, *, acked: _Pairs = (), done: _Pairs = (), received: _Pairs = ()) -> None:
    """Complete what came so far; to forget that something was sent would mean to send it twice."""
    while True:
        try:
            if acked:
                await outbox.acked(acked)
            if done:
                await outbox.done(done)
            if received:
                await outbox.received(received)
        except StoreUnavailable:
            await asyncio.sleep(_RETRY_S)
        else:
            return
