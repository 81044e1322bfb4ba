"""What of the queued items their people do not want to be told: mutes, edits, filters.

It is decided just before a batch is claimed, so that a change of mind counts at once, and handed over with the claim,
so that what is withheld is told by nobody, stays withheld in every attempt, and no other item slips through.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from bots.versions import versions
from service.discovery.standing import Subject
from service.filters import subjects
from service.model import ChannelId, Delta, UserId
from service.preferences import FOR_ALL, ByNumber, withheld
from service.store import Store
from service.store.outbox import OutboxItem, QueuedItem, Withheld

LOOKED_AT: Final = 100
"""Items of one person that are looked at before a claim; if all of them are withheld, it is their turn again."""
KEPT: Final = 256
"""Items whose changes are remembered as tests see them."""

_Seen = tuple[tuple[Delta, tuple[Subject, ...]], ...]


class Withholding:
    """Decides for people who prefer something."""

    def __init__(self, store: Store) -> None:
        """Look in this store."""
        self._store = store
        self._seen: OrderedDict[tuple[ChannelId, int, int | None], _Seen] = OrderedDict()

    async def of(self, people: Mapping[UserId, ByNumber]) -> dict[UserId, Withheld]:
        """Return what is not to be claimed of each of these people's oldest items. Raises StoreUnavailable."""
        queues = await self._store.outbox.queued(list(people), LOOKED_AT)
        pairs = list(
            dict.fromkeys((uid, each.item.channel) for uid, queue in zip(people, queues, strict=True) for each in queue)
        )
        numbers: defaultdict[UserId, dict[ChannelId, int]] = defaultdict(dict)
        for (uid, cid), number in zip(pairs, await self._store.subscriptions.numbers(pairs), strict=True):
            numbers[uid][cid] = number or FOR_ALL
        found: dict[UserId, Withheld] = {}
        for (uid, preferences), queue in zip(people.items(), queues, strict=True):
            found[uid] = await self._decided(queue, preferences, numbers[uid])
            await asyncio.sleep(0)  # filters of many people are no reason for the others to wait
        return found

    async def _decided(
        self, queue: Sequence[QueuedItem], preferences: ByNumber, numbers: Mapping[ChannelId, int]
    ) -> Withheld:
        decided: Withheld = {}
        for each in queue:
            number, edits = numbers[each.item.channel], each.item.edits
            decided[each.place] = withheld(preferences, number, await self._changes(each.item), edits=edits)
        return decided

    async def _changes(self, item: OutboxItem) -> _Seen:
        place = (item.channel, item.version, item.after)
        seen = self._seen.get(place)
        if seen is None:
            found = await versions(self._store.channels, item)
            seen = self._seen[place] = tuple((delta, subjects(delta.changes)) for delta in found.deltas)
            if len(self._seen) > KEPT:
                self._seen.popitem(last=False)
        return seen
