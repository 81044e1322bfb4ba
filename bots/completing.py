"""How deliveries end: in the outbox, however long Redis is away, and in the metrics."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

import msgspec

from bots.bodies import Body
from service.errors import StoreUnavailable
from service.metrics import OUTBOX_USERS
from service.model import UserId
from service.store.outbox import Batch, MessageId, Outbox

_RETRY_S: Final = 0.5
_COUNT_EVERY_S: Final = 5.0

_Pairs = Sequence[tuple[UserId, MessageId]]


class Sent(msgspec.Struct, frozen=True):
    """A batch on its way to one person; whether its receipt was asked for."""

    uid: UserId
    batch: Batch
    body: Body
    asked: bool


async def completed(outbox: Outbox, *, acked: _Pairs = (), done: _Pairs = (), received: _Pairs = ()) -> None:
    """Complete batches: those of which a receipt is awaited now, those that are finished, and those whose receipt came.

    To forget that something was sent would mean to send it twice.
    """
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


async def count_waiting(outbox: Outbox) -> None:
    """Keep the gauge of how many people wait for something."""
    while True:
        with contextlib.suppress(StoreUnavailable):
            OUTBOX_USERS.set(await outbox.depth())
        await asyncio.sleep(_COUNT_EVERY_S)
