"""How deliveries end: in the outbox, however long Redis is away, and in the metrics."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

import msgspec

from bots.bodies import Body
from service.errors import StoreUnavailable
from service.metrics import DELIVERY, OUTBOX_USERS
from service.model import UserId
from service.store.outbox import Batch, MessageId, Outbox

_RETRY_S: Final = 0.5
_COUNT_EVERY_S: Final = 5.0


class Sent(msgspec.Struct, frozen=True):
    """A batch on its way to one person; whether its receipt was asked for."""

    uid: UserId
    batch: Batch
    body: Body
    asked: bool


def measure(sent: Sequence[Sent], wall_s: float) -> None:
    """Count how long it took from detecting news to handing it over."""
    for one in sent:
        if not one.batch.acked and not one.batch.replaces:  # of a correction, most was detected long ago
            for detected_s in one.body.detected_s:
                DELIVERY.observe(max(0.0, wall_s - detected_s))


async def completed(
    outbox: Outbox, receipted: Sequence[tuple[UserId, MessageId]], finished: Sequence[tuple[UserId, MessageId]]
) -> None:
    """Complete batches: those of which a receipt is awaited now, and those that are finished.

    To forget that something was sent would mean to send it twice.
    """
    while True:
        try:
            if receipted:
                await outbox.acked(receipted)
            if finished:
                await outbox.done(finished)
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
