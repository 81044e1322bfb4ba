"""The availability of recipients: when quiet hours, digests and presence allow messages to each user."""

from collections.abc import Mapping
from typing import Final

from cachetools import FIFOCache

from bots.xmpp import stanzas
from bots.xmpp.interface import XmppSender
from bots.xmpp.presence_tracker import MAX_USERS
from service.clock import Clock
from service.model import UserId
from service.store import Store
from service.users.user_settings import UserSettings, earliest_delivery_s

PRESENCE_RECHECK_S: Final = 3_600.0
"""Interval between checks whether a user who is away has returned. Usually an event reports this; the checks are for
the case that the event was lost."""
PRESENCE_TIMEOUT_S: Final = 30.0
"""If a presence probe gets no response for this time, the user is assumed not to share their presence."""


class RecipientAvailability:
    """Determines when messages may be sent to the users of one process.

    What it knows about users' presences is forgotten when the XMPP session ends.
    """

    def __init__(self, store: Store, xmpp: XmppSender, clock: Clock) -> None:
        """Create an instance that does not know any presence yet.

        Users' queues are read from ``store``, and presence probes are sent through ``xmpp``.
        """
        self._store = store
        self._xmpp = xmpp
        self._clock = clock
        self._is_available: FIFOCache[UserId, bool] = FIFOCache(MAX_USERS)
        self._probed_s: dict[UserId, float] = {}

    def on_session_started(self) -> None:
        """Forget all presences, because they were received in the previous session."""
        self._is_available.clear()
        self._probed_s.clear()

    def on_presence(self, user_id: UserId, *, is_available: bool) -> None:
        """Record whether a user is available: online, and neither away nor busy."""
        self._is_available[user_id] = is_available

    def remove(self, user_id: UserId) -> None:
        """Remove all data about a user."""
        self._is_available.pop(user_id, None)
        self._probed_s.pop(user_id, None)

    async def remaining_s(
        self, user_settings: Mapping[UserId, UserSettings], since_s: Mapping[UserId, float | None]
    ) -> dict[UserId, float]:
        """Return how many seconds must pass until messages may be sent, for each user who must wait.

        - ``user_settings``: the users to check, with their settings.
        - ``since_s``: the Unix time in seconds since which each user's items have been waiting; None if no items are
          waiting. For users who are absent from ``since_s``, the time is read from the store.

        Users who need not wait are absent from the result. Raises StoreUnavailable if the store does not respond.
        """
        remaining: dict[UserId, float] = {}
        if not user_settings:
            return remaining
        wall_s = self._clock.wall_s()
        others = [user_id for user_id in user_settings if user_id not in since_s]
        queued_s = dict(zip(others, await self._store.outbox.oldest_queued_s(others), strict=True)) | dict(since_s)
        for user_id, own in user_settings.items():
            own_queued_s = queued_s[user_id]
            if own_queued_s is None:
                continue
            wait_s = earliest_delivery_s(own, own_queued_s, wall_s) - wall_s
            if own.heeds_presence:
                wait_s = max(wait_s, await self._unavailable_s(user_id))
            if wait_s > 0:
                remaining[user_id] = wait_s
        return remaining

    async def _unavailable_s(self, user_id: UserId) -> float:
        """Return the seconds until a user's availability must be checked again; 0 if the user is available.

        If the user's presence is unknown, probe it. A user who does not share their presence with the bot counts as
        available, because messages to this user would otherwise wait forever.
        """
        is_available = self._is_available.get(user_id)
        if is_available is not None:
            return 0.0 if is_available else PRESENCE_RECHECK_S
        now_s = self._clock.monotonic_s()
        if user_id not in self._probed_s:
            self._probed_s[user_id] = now_s
            (jid,) = await self._store.users.jids([user_id])
            self._xmpp.send_unconfirmed(stanzas.presence(self._xmpp.address, jid, "probe"))
        return max(0.0, self._probed_s.get(user_id, now_s) + PRESENCE_TIMEOUT_S - now_s)
