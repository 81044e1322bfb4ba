"""The availability of recipients: when each user may be sent messages, by quiet hours, digests and presence."""

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
"""Interval between checks of a user who is away. Changes of presence are events; the checks replace lost events."""
PRESENCE_TIMEOUT_S: Final = 30.0
"""Time without a response to a presence probe after which the user counts as not sharing presence."""


class RecipientAvailability:
    """The availability of the users of one process. Presences are kept for one XMPP session."""

    def __init__(self, store: Store, xmpp: XmppSender, clock: Clock) -> None:
        """Create an availability tracker that knows no presences yet.

        Queues of users are read from ``store``, and presence probes are sent through ``xmpp``.
        """
        self._store = store
        self._xmpp = xmpp
        self._clock = clock
        self._is_available: FIFOCache[UserId, bool] = FIFOCache(MAX_USERS)
        self._probed_s: dict[UserId, float] = {}

    def on_session_started(self) -> None:
        """Clear all presences, because they belong to the previous session."""
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
        """Return the seconds until each user may be sent messages; users who may be sent messages now are absent.

        ``since_s`` has the time (Unix s) since which the items of each user have been waiting; None means that no items
        wait. For a user who is absent from ``since_s``, the time is read from the store. Raises StoreUnavailable if the
        store does not respond.
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
        """Return the seconds until a user's availability has to be checked again; 0 if the user is available.

        If the user's presence is unknown, it is probed. A user who does not share their presence counts as available,
        because messages would otherwise wait forever.
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
