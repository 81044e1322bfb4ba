"""What of the queued items their people do not want to be told, or not yet: mutes, edits, filters, intervals.

It is decided just before a batch is claimed, so that a change of mind counts at once, and handed over with the claim,
so that what is withheld is told by nobody, stays withheld in every attempt, and no other item slips through.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

import msgspec

from bots.knowing import Wishes
from bots.versions import versions
from service.discovery.standing import Subject
from service.model import ChannelId, Delta, UserId
from service.preferences import DIGEST_TAKES_S, FOR_ALL, chooses, free_s, interval_s, spaces, subjects, withheld
from service.store import Store
from service.store.outbox import OutboxItem, QueuedItem
from service.store.withheld import Decided, Withheld

LOOKED_AT: Final = 100
"""Items that one person may be told now and that are looked at before a claim; if all are withheld, it is their turn
again."""
MOST_PAGES: Final = 10
"""So many times as many items are looked at for some that may be told; who lets more than that wait, waits for them."""
KEPT: Final = 256
"""Items whose changes are remembered as tests see them."""

_Seen = tuple[tuple[Delta, tuple[Subject, ...]], ...]


class Choice(msgspec.Struct):
    """What is decided of one person's oldest items, of whom these things are known.

    The oldest of what may be told now waits ``since_s`` (None if nothing may), the next of what may not may from
    ``later_s`` on (Unix s). ``free`` are those that may be told now, of the channels that are ``spaced`` at intervals;
    ``numbers`` those of the subscriptions.
    """

    wishes: Wishes
    told_at_s: Mapping[ChannelId, float]
    withheld: Withheld = {}
    spaced: set[ChannelId] = set()
    since_s: float | None = None
    later_s: float = inf
    free: int = 0
    numbers: dict[ChannelId, int] = {}

    @property
    def decided(self) -> Decided:
        """What the claim has to heed."""
        return Decided(self.withheld, frozenset(self.spaced))

    @property
    def waits(self) -> bool:
        """Whether there is something, and nothing of it may be told now."""
        return bool(self.withheld) and not self.free

    @property
    def more(self) -> bool:
        """Whether there may be items that were not looked at."""
        return self.free == LOOKED_AT

    def takes(self, each: QueuedItem, now_s: float) -> bool:
        """Say whether an item may be told now; notes it."""
        spacing_s = 0.0 if each.item.met else _spacing_s(self.wishes, self.numbers[each.item.channel])
        due_s = free_s(each.queued_s, self.told_at_s.get(each.item.channel), spacing_s)
        if spacing_s > 0:
            self.spaced.add(each.item.channel)
        if due_s > max(now_s, each.queued_s):
            self.later_s = min(self.later_s, due_s)
            return False
        self.since_s = due_s if self.since_s is None else min(self.since_s, due_s)
        self.free += 1
        return True


class Withholding:
    """Decides for people who prefer something."""

    def __init__(self, store: Store) -> None:
        """Look in this store."""
        self._store = store
        self._seen: OrderedDict[tuple[ChannelId, int, int | None], _Seen] = OrderedDict()

    async def of(self, people: Mapping[UserId, Wishes], now_s: float) -> dict[UserId, Choice]:
        """Return what of the oldest items is to be claimed now (Unix s), of those of these people who prefer something.

        Raises StoreUnavailable.
        """
        people = {uid: own for uid, own in people.items() if chooses(own.preferences) or spaces(own.preferences)}
        if not people:
            return {}
        told_at_s = await self._store.outbox.told_at_s(list(people))
        found = {uid: Choice(people[uid], noted_s) for uid, noted_s in zip(people, told_at_s, strict=True)}
        places = dict.fromkeys(people, "")
        for _ in range(MOST_PAGES):
            if not places:
                break
            queues = dict(zip(places, await self._store.outbox.queued(places, LOOKED_AT), strict=True))
            await self._number({uid: (found[uid], queue) for uid, queue in queues.items()})
            for uid, queue in queues.items():
                await self._decide(found[uid], queue, now_s)
                if len(queue) < LOOKED_AT or found[uid].more:
                    del places[uid]
                else:
                    places[uid] = queue[-1].place
                await asyncio.sleep(0)  # filters of many people are no reason for the others to wait
        return found

    async def _number(self, people: Mapping[UserId, tuple[Choice, Sequence[QueuedItem]]]) -> None:
        """Find out which subscriptions these items are of."""
        wanted = {
            (uid, each.item.channel): choice
            for uid, (choice, queue) in people.items()
            for each in queue
            if each.item.channel not in choice.numbers
        }
        for (uid, cid), number in zip(wanted, await self._store.subscriptions.numbers(list(wanted)), strict=True):
            wanted[uid, cid].numbers[cid] = number or FOR_ALL

    async def _decide(self, choice: Choice, queue: Sequence[QueuedItem], now_s: float) -> None:
        """Go on with a choice at these items."""
        for each in queue:
            if choice.more:
                return
            if choice.takes(each, now_s):
                preferences, changes = choice.wishes.preferences, await self._changes(each.item)
                number = choice.numbers[each.item.channel]
                choice.withheld[each.place] = withheld(preferences, number, changes, edits=each.item.edits)
            else:
                choice.withheld[each.place] = "later"

    async def _changes(self, item: OutboxItem) -> _Seen:
        place = (item.channel, item.version, item.after)
        seen = self._seen.get(place)
        if seen is None:
            found = await versions(self._store.channels, item)
            seen = self._seen[place] = tuple((delta, subjects(delta.changes)) for delta in found.deltas)
            if len(self._seen) > KEPT:
                self._seen.popitem(last=False)
        return seen


def _spacing_s(wishes: Wishes, number: int) -> float:
    wanted_s = interval_s(wishes.preferences, number)
    return max(0.0, wanted_s - DIGEST_TAKES_S) if wishes.habits.digest is not None else wanted_s
