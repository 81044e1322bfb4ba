"""What of a person's queued items is not sent, or not yet: mutes, edits, filters, intervals, quiet hours and digests.

It is decided just before a batch is claimed, so that a change of settings applies at once. Filters and intervals are
handed over with the claim: what is withheld is told by no other channel, stays withheld in every attempt, and no item
slips through that was queued meanwhile.
"""

import asyncio
from collections.abc import Mapping, Sequence
from math import inf
from typing import Final

import msgspec
from cachetools import FIFOCache

from bots.delivery.message_bodies import versions
from bots.delivery.recipient_cache import Recipient
from bots.xmpp import stanzas
from bots.xmpp.interface import XmppSender
from bots.xmpp.presence import MOST_PEOPLE
from service.clock import Clock
from service.discovery.saved_searches import Subject
from service.model import ChannelId, Delta, UserId
from service.store import Store
from service.store.delivery.outbox import OutboxItem, QueuedItem, Suppressions
from service.users.preferences import (
    DIGEST_TOLERANCE_S,
    FOR_ALL,
    build_subjects,
    earliest_send_s,
    effective_interval_s,
    has_filters,
    has_intervals,
    suppressed_positions,
)
from service.users.quiet_hours import UserSettings, earliest_delivery_s

LOOKED_AT: Final = 100
"""Items of one person that may be sent now and that are examined before a claim; if all are withheld, it is their turn
again."""
MOST_PAGES: Final = 10
"""Pages of as many items that are examined for some that may be sent; who has more that waits, waits for them."""
KEPT: Final = 256
"""Items whose changes are remembered as filters see them."""
PRESENCE_LOOK_S: Final = 3_600.0
"""A change of presence is an event, so this is only for one that was lost."""
PRESENCE_WITHIN_S: Final = 30.0
"""Without any presence for so long after a probe, the person does not share theirs."""

_Seen = tuple[tuple[Delta, tuple[Subject, ...]], ...]


class Choice(msgspec.Struct):
    """What is decided of one person's oldest items.

    ``told_at_s`` is when the ``spaced`` channels, those with intervals, were told last. The oldest item that may be
    sent now waits ``since_s`` (None without any), the next of the others may be sent from ``later_s`` on (Unix s).
    ``free`` counts those that may be sent now; ``numbers`` are those of the subscriptions.
    """

    recipient: Recipient
    told_at_s: Mapping[ChannelId, float]
    withheld: Suppressions = {}
    spaced: set[ChannelId] = set()
    since_s: float | None = None
    later_s: float = inf
    free: int = 0
    numbers: dict[ChannelId, int] = {}

    @property
    def more(self) -> bool:
        """Whether there may be items that were not examined."""
        return self.free == LOOKED_AT

    def takes(self, each: QueuedItem, now_s: float) -> bool:
        """Count an item; return whether it may be sent now, as far as intervals go."""
        spacing_s = 0.0 if each.item.met else _spacing_s(self.recipient, self.numbers[each.item.channel])
        due_s = earliest_send_s(each.queued_s, self.told_at_s.get(each.item.channel), spacing_s)
        if spacing_s > 0:
            self.spaced.add(each.item.channel)
        if due_s > max(now_s, each.queued_s):
            self.later_s = min(self.later_s, due_s)
            return False
        self.since_s = due_s if self.since_s is None else min(self.since_s, due_s)
        self.free += 1
        return True


class Withholding:
    """Decides what may be sent. Remembers for one session who is free to be told. Times are Unix s."""

    def __init__(self, store: Store, link: XmppSender, clock: Clock) -> None:
        """Read from ``store``; probe people's presence through ``link``."""
        self._store = store
        self._link = link
        self._clock = clock
        self._seen: FIFOCache[tuple[ChannelId, int, int | None], _Seen] = FIFOCache(KEPT)
        self._free: FIFOCache[UserId, bool] = FIFOCache(MOST_PEOPLE)
        self._probed_s: dict[UserId, float] = {}

    # Mutes, filters, intervals.

    async def choices(self, people: Mapping[UserId, Recipient], now_s: float) -> dict[UserId, Choice]:
        """Decide what of the oldest items may be sent now, for people who have mutes, filters or intervals.

        Others are absent from what is returned. Raises StoreUnavailable.
        """
        people = {
            uid: own for uid, own in people.items() if has_filters(own.preferences) or has_intervals(own.preferences)
        }
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
                await asyncio.sleep(0)  # filters of many people do not block the event loop
        return found

    async def _number(self, people: Mapping[UserId, tuple[Choice, Sequence[QueuedItem]]]) -> None:
        """Look up the numbers of the subscriptions that these items are of."""
        wanted = {
            (uid, each.item.channel): choice
            for uid, (choice, queue) in people.items()
            for each in queue
            if each.item.channel not in choice.numbers
        }
        for (uid, cid), number in zip(wanted, await self._store.subscriptions.numbers(list(wanted)), strict=True):
            wanted[uid, cid].numbers[cid] = number or FOR_ALL

    async def _decide(self, choice: Choice, queue: Sequence[QueuedItem], now_s: float) -> None:
        for each in queue:
            if choice.more:
                return
            if choice.takes(each, now_s):
                preferences, changes = choice.recipient.preferences, await self._changes(each.item)
                number = choice.numbers[each.item.channel]
                choice.withheld[each.place] = suppressed_positions(preferences, number, changes, edits=each.item.edits)
            else:
                choice.withheld[each.place] = "later"

    async def _changes(self, item: OutboxItem) -> _Seen:
        place = (item.channel, item.version, item.after)
        seen = self._seen.get(place)
        if seen is None:
            found = await versions(self._store.channels, item)
            seen = self._seen[place] = tuple((delta, build_subjects(delta.changes)) for delta in found.deltas)
        return seen

    # Quiet hours, digests, presence.

    def started(self) -> None:
        """A session began: nobody's presence is known."""
        self._free.clear()
        self._probed_s.clear()

    def seen(self, uid: UserId, *, is_free: bool) -> None:
        """Remember whether somebody is online, and neither away nor busy."""
        self._free[uid] = is_free

    def forget(self, uid: UserId) -> None:
        """Remember nothing of somebody."""
        self._free.pop(uid, None)
        self._probed_s.pop(uid, None)

    async def rests_s(
        self, people: Mapping[UserId, UserSettings], since_s: Mapping[UserId, float | None]
    ) -> dict[UserId, float]:
        """Return who wants no messages now, and for how many seconds. Raises StoreUnavailable.

        ``since_s`` is since when what may be sent waits, None if nothing does; of people who are not in it, since when
        their oldest item is queued.
        """
        resting: dict[UserId, float] = {}
        if not people:
            return resting
        wall_s = self._clock.wall_s()
        others = [uid for uid in people if uid not in since_s]
        waits_s = dict(zip(others, await self._store.outbox.oldest_s(others), strict=True)) | dict(since_s)
        for uid, user_settings in people.items():
            queued_s = waits_s[uid]
            if queued_s is None:
                continue
            rest_s = earliest_delivery_s(user_settings, queued_s, wall_s) - wall_s
            if user_settings.heeds_presence:
                rest_s = max(rest_s, await self._absent_s(uid))
            if rest_s > 0:
                resting[uid] = rest_s
        return resting

    async def _absent_s(self, uid: UserId) -> float:
        """Return how long to wait before checking again whether somebody is free to be told; 0 if they are.

        Who shares no presence with us counts as free: nobody waits for ever.
        """
        free = self._free.get(uid)
        if free is not None:
            return 0.0 if free else PRESENCE_LOOK_S
        now_s = self._clock.monotonic_s()
        if uid not in self._probed_s:
            self._probed_s[uid] = now_s
            (jid,) = await self._store.outbox.address([uid])
            self._link.send_unconfirmed(stanzas.presence(self._link.address, jid, "probe"))
        return max(0.0, self._probed_s.get(uid, now_s) + PRESENCE_WITHIN_S - now_s)


def _spacing_s(recipient: Recipient, number: int) -> float:
    wanted_s = effective_interval_s(recipient.preferences, number)
    return max(0.0, wanted_s - DIGEST_TOLERANCE_S) if recipient.user_settings.digest is not None else wanted_s
