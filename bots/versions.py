"""What an item of the outbox stands for: a version of a channel, or after a pause all that were withheld."""

from collections.abc import Sequence
from typing import Final

import msgspec

from service.feeds.parts import share
from service.model import Delta
from service.store.channels import Channels
from service.store.outbox import OutboxItem

MOST_AT_ONCE: Final = 100
"""Versions that are read for one item: of a longer pause the latest are told, the others counted."""


class Versions(msgspec.Struct, frozen=True):
    """The deltas of an item, oldest first; ``gone`` of its versions are not kept any more, or are too many."""

    deltas: tuple[Delta, ...]
    gone: int


async def versions(channels: Channels, item: OutboxItem) -> Versions:
    """Return what an item stands for. Raises StoreUnavailable."""
    after = item.version - 1 if item.after is None else item.after
    first = max(after + 1, item.version - MOST_AT_ONCE + 1)
    found = await channels.deltas(item.channel, first, item.version)
    return Versions(tuple(delta for delta in found if not delta.initial), item.version - after - len(found))


def shares(item: OutboxItem, deltas: Sequence[Delta]) -> list[Delta]:
    """Return the part of each delta that an item tells: positions are counted through all of them."""
    found, first = [], 0
    for delta in deltas:
        own = [position - first for position in item.left_out]
        found.append(share(delta, edits=item.edits, left_out=own))
        first += len(delta.changes)
    return found
