"""A tracker that combines the presences of all clients of a user.

Anybody can send presence from any number of addresses. Therefore only users with a record in the store are tracked. The
number of tracked users is limited, and so is the number of tracked clients of each user. When the bot needs to know the
presence of a user who is not tracked, it sends a presence probe.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Final

from bots.xmpp.events import PresenceChanged, UserPresence
from service.asyncio_tasks import retry_while_unavailable
from service.store.client.keys import user_id
from service.store.people.users import Users

MAX_USERS: Final = 50_000
MAX_CLIENTS: Final = 20
"""Maximum number of clients tracked for one user."""
LOOKUP_SIZE: Final = 500
"""Maximum number of presences whose senders are looked up in the store together."""
_MAX_PENDING: Final = 10_000


class PresenceTracker:
    """Combines the presences of a user's clients into events about the user.

    The event handlers never wait for the store; :meth:`run` looks up unknown senders there.
    """

    def __init__(self, users: Users, on_event: Callable[[UserPresence], None]) -> None:
        """Create a tracker for the users who have a record in ``users``.

        ``on_event`` is called with a user's combined presence whenever one of the user's clients has sent a presence or
        another stanza.
        """
        self._users = users
        self._on_event = on_event
        self.clients: dict[str, dict[str, bool]] = {}
        """Bare JID → resource → whether the client is neither away nor busy; the most recent change comes last."""
        self.pending: deque[PresenceChanged] = deque()
        """Presences whose senders are yet to be looked up: at most ``_MAX_PENDING``; further presences are dropped."""
        self._pending_per_jid: Counter[str] = Counter()
        self._has_pending = asyncio.Event()

    def on_session_started(self) -> None:
        """Forget all presences, because the server sends them again in a new session."""
        self.clients.clear()
        self.pending.clear()
        self._pending_per_jid.clear()

    def on_presence_changed(self, event: PresenceChanged) -> None:
        """Apply the presence at once if its sender is tracked; otherwise queue it, or drop it if the queue is full.

        :meth:`run` applies queued presences after it has looked up their senders.
        """
        if event.jid in self.clients and event.jid not in self._pending_per_jid:
            self._apply(event)
        elif len(self.pending) < _MAX_PENDING:
            self.pending.append(event)
            self._pending_per_jid[event.jid] += 1
            self._has_pending.set()

    def on_client_active(self, jid: str, resource: str) -> None:
        """Report the user ``jid`` as online, because the user's client ``resource`` has sent a stanza of any kind."""
        self._on_event(UserPresence(jid, is_new_client=resource not in self.clients.get(jid, ())))

    async def run(self) -> None:
        """Look up the senders of queued presences, and apply those of known users, until cancelled."""
        while True:
            await self._has_pending.wait()
            batch = [self.pending[index] for index in range(min(LOOKUP_SIZE, len(self.pending)))]
            jids = list(dict.fromkeys(event.jid for event in batch))
            known = await retry_while_unavailable(partial(self._users.are_known, [user_id(jid) for jid in jids]))
            is_known = dict(zip(jids, known, strict=True))
            while self.pending and self.pending[0].jid in is_known:  # a new session may have begun meanwhile
                event = self.pending.popleft()
                self._pending_per_jid[event.jid] -= 1
                if not self._pending_per_jid[event.jid]:
                    del self._pending_per_jid[event.jid]
                if is_known[event.jid]:
                    self._apply(event)
            if not self.pending:
                self._has_pending.clear()

    def _apply(self, event: PresenceChanged) -> None:
        resources = self.clients.pop(event.jid, {})
        is_new = event.is_online and event.resource not in resources
        if event.is_online:
            resources.pop(event.resource, None)
            resources[event.resource] = event.is_free
            if len(resources) > MAX_CLIENTS:
                del resources[next(iter(resources))]
        elif event.resource:
            resources.pop(event.resource, None)
        else:
            resources.clear()
        if not resources:
            self._on_event(UserPresence(event.jid, is_online=False))
            return
        self.clients[event.jid] = resources
        if len(self.clients) > MAX_USERS:
            del self.clients[next(iter(self.clients))]
        self._on_event(UserPresence(event.jid, is_free=any(resources.values()), is_new_client=is_new))
