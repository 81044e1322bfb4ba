"""What is decided of a person's queued items before they are claimed, as the claim's script reads it."""

from collections.abc import Iterator
from typing import Literal

import msgspec

from service.model import ChannelId
from service.preferences import MOST_INTERVAL_S

Withheld = dict[str, tuple[int, ...] | Literal["later"] | None]
"""By the places of items, in order: the positions of changes that are not to be told; "later" for an item that is to be
told another time, None for one that never is."""


class Decided(msgspec.Struct, frozen=True):
    """What a claim has to heed of one person; the channels that are ``spaced`` are told them at intervals."""

    withheld: Withheld
    spaced: frozenset[ChannelId] = frozenset()


def written(decided: Decided | None) -> Iterator[str | int]:
    """Yield the last place to look at, then each item's place with what is withheld of it, as outbox_claim reads it."""
    if decided is None:
        return
    yield next(reversed(decided.withheld), "0-1")
    yield " ".join(decided.spaced)
    yield MOST_INTERVAL_S
    for place, positions in decided.withheld.items():
        if positions != ():
            yield place
            match positions:
                case None | "later":
                    yield positions or ""
                case _:
                    yield msgspec.json.encode(positions).decode()
