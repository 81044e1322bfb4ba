"""Who is online, of people we know: a person's presence is that of all their clients together.

Anybody can send presence, under any number of addresses. So only people of whom there is a record in the store are
remembered, a bounded number of them and of each one's clients. Whoever is left out is asked (a presence probe) when
their presence matters.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from bots.xmpp.events import ClientActive, PresenceChanged, UserAvailable, UserUnavailable
from service.errors import StoreUnavailable
from service.store.client.keys import user_id
from service.store.people.users import Users

MOST_PEOPLE: Final = 50_000
MOST_RESOURCES: Final = 20
"""Clients of one person."""
AT_ONCE: Final = 500
_MOST_WAITING: Final = 10_000
_RETRY_S: Final = 0.5


class Presences:
    """Turns clients' presences into people's. :meth:`run` drives it; the other methods never wait."""

    def __init__(self, users: Users, on_event: Callable[[UserAvailable | UserUnavailable], None]) -> None:
        """Hand the presence of people whom ``users`` has to ``on_event``."""
        self._users = users
        self._on_event = on_event
        self.people: dict[str, dict[str, bool]] = {}
        """JID → resource → whether the person is neither away nor busy there; who changed last comes last."""
        self.waiting: deque[PresenceChanged] = deque()
        """What is still to be looked up; beyond a bound, presences are ignored."""
        self._waiting_of: Counter[str] = Counter()
        self._stirred = asyncio.Event()

    def started(self) -> None:
        """A session began that continues no earlier one: nothing is known of anybody."""
        self.people.clear()
        self.waiting.clear()
        self._waiting_of.clear()

    def changed(self, event: PresenceChanged) -> None:
        """A client came online, changed its presence, or went offline."""
        if event.jid in self.people and event.jid not in self._waiting_of:
            self._remember(event)
        elif len(self.waiting) < _MOST_WAITING:
            self.waiting.append(event)
            self._waiting_of[event.jid] += 1
            self._stirred.set()

    def wrote(self, event: ClientActive) -> None:
        """A client that we did not know to be online is one that came online: not everybody shows us their presence."""
        is_new = event.resource not in self.people.get(event.jid, ())
        self._on_event(UserAvailable(event.jid, is_new_client=is_new))

    async def run(self) -> None:
        """Look up who is known until cancelled."""
        while True:
            await self._stirred.wait()
            some = [self.waiting[place] for place in range(min(AT_ONCE, len(self.waiting)))]
            jids = list(dict.fromkeys(event.jid for event in some))
            try:
                known = dict(zip(jids, await self._users.are_known([user_id(jid) for jid in jids]), strict=True))
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)
                continue
            while self.waiting and self.waiting[0].jid in known:  # a new session may have begun meanwhile
                event = self.waiting.popleft()
                self._waiting_of[event.jid] -= 1
                if not self._waiting_of[event.jid]:
                    del self._waiting_of[event.jid]
                if known[event.jid]:
                    self._remember(event)
            if not self.waiting:
                self._stirred.clear()

    def _remember(self, event: PresenceChanged) -> None:
        resources = self.people.pop(event.jid, {})
        is_new = event.is_online and event.resource not in resources
        if event.is_online:
            resources.pop(event.resource, None)
            resources[event.resource] = event.is_free
            if len(resources) > MOST_RESOURCES:
                del resources[next(iter(resources))]
        elif event.resource:
            resources.pop(event.resource, None)
        else:
            resources.clear()
        if not resources:
            self._on_event(UserUnavailable(event.jid))
            return
        self.people[event.jid] = resources
        if len(self.people) > MOST_PEOPLE:
            del self.people[next(iter(self.people))]
        self._on_event(UserAvailable(event.jid, any(resources.values()), is_new_client=is_new))
