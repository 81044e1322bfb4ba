"""Catch-up after downtime: stores the messages that were sent to an account while no bot was there to store them.

While no process is connected, the account's server keeps messages in two places. Offline messages (XEP-0160) arrive in
the next session. The archive (XEP-0313) also contains the messages that a failed process received but did not store.
Therefore each session of an account first stores the messages in the archive, and then the messages that arrive in the
session. The *checkpoint* is the time up to which all messages are known to be stored; the archive is read from this
time on. A component has no archive.
"""

import asyncio
import contextlib
import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final

import structlog

from bots.xmpp.archive import read_archive
from bots.xmpp.deduplication import MAX_AGE_S, MAX_CLOCK_SKEW_S
from bots.xmpp.events import MessageReceived
from bots.xmpp.interface import XmppClient, XmppSessionLost
from service.asyncio_tasks import retry_while_unavailable
from service.clock import Clock
from service.errors import StoreUnavailable
from service.store.delivery.inbound_log import InboundLog

CHECKPOINT_INTERVAL_S: Final = 5.0
_CATCH_UP_TIMEOUT_S: Final = 120.0
"""Time limit for reading the archive. The messages of a new session are not stored before the archive is read or this
time has passed."""


_log = structlog.get_logger()


class SyncState(enum.Enum):
    """Whether all messages sent to the bot's address have been stored."""

    BEHIND = enum.auto()
    """A session of an account has begun; the archive must be read before messages of the session are stored."""
    CATCHING_UP = enum.auto()
    """The archive is being read."""
    COMPLETE = enum.auto()
    """All messages are stored, except those that wait in the queue."""
    INCOMPLETE = enum.auto()
    """There has been no session, or the archive could not be read; the next session tries again."""


class CatchUp:
    """Stores the messages that users sent to a bot address while no bot was there to store them.

    These messages are read from the archive (XEP-0313) when a session starts. This class also stores the
    *checkpoint*: the time up to which all messages to this address are known to be stored.
    """

    def __init__(
        self,
        inbound_log: InboundLog,
        xmpp: XmppClient,
        clock: Clock,
        store_pages: Callable[[AsyncIterator[Sequence[MessageReceived]]], Awaitable[int]],
    ) -> None:
        """Create an instance that has nothing to do until a session starts.

        ``store_pages`` stores the messages on pages of the archive, and returns how many of them were new.
        """
        self._inbound_log = inbound_log
        self._xmpp = xmpp
        self._clock = clock
        self._store_pages = store_pages
        self._state = SyncState.INCOMPLETE
        self._last_checkpoint_s = -CHECKPOINT_INTERVAL_S

    @property
    def is_due(self) -> bool:
        """Whether the archive must be read before the messages that arrive in the session can be stored."""
        return self._state is SyncState.BEHIND

    def on_session_started(self) -> None:
        """Request that the archive be read, because a new session has begun. A component has no archive to read."""
        self._state = SyncState.BEHIND if self._xmpp.is_account else SyncState.COMPLETE

    async def run(self) -> None:
        """Read the archive of the bot's account, and store the messages in it that are not stored yet.

        If a new session begins in the meantime, :attr:`is_due` is true again.
        """
        self._state, result = SyncState.CATCHING_UP, SyncState.INCOMPLETE
        with contextlib.suppress(TimeoutError, XmppSessionLost):
            async with asyncio.timeout(_CATCH_UP_TIMEOUT_S):
                await retry_while_unavailable(self._store_archive)
                result = SyncState.COMPLETE
        if self._state is SyncState.CATCHING_UP:
            self._state = result

    async def _store_archive(self) -> None:
        """Store the archived messages since the last checkpoint, except those older than ``MAX_AGE_S`` seconds.

        The checkpoint is the time up to which all messages are stored. If no checkpoint exists, store no archived
        messages; the current time becomes the first checkpoint.
        """
        log, address, now_s = self._inbound_log, self._xmpp.address, self._clock.wall_s()
        checkpoint_s = await log.caught_up_until_s(address)
        since_s = max(checkpoint_s - MAX_CLOCK_SKEW_S, now_s - MAX_AGE_S) if checkpoint_s else now_s
        new_count = await self._store_pages(page.messages async for page in read_archive(self._xmpp, since_s))
        await log.record_caught_up(address, now_s)
        _log.info("message archive fetched", lookback_s=round(now_s - since_s), new=new_count)

    async def write_checkpoint(self, *, is_idle: bool) -> None:
        """Store the checkpoint, that is, the time up to which all messages to the bot are stored.

        ``is_idle`` states whether all received messages are stored. If it is false, do nothing. Also do nothing if the
        archive has not been read, if there is no session, or if the last checkpoint was stored only a few seconds ago.
        """
        now_s = self._clock.monotonic_s()
        is_complete = self._state is SyncState.COMPLETE and is_idle
        is_due = now_s - self._last_checkpoint_s >= CHECKPOINT_INTERVAL_S
        if is_complete and self._xmpp.connected.is_set() and is_due:
            self._last_checkpoint_s = now_s
            complete_until_s = self._clock.wall_s() - self._xmpp.idle_s()
            with contextlib.suppress(StoreUnavailable):  # then a longer part of the archive is read again
                await self._inbound_log.record_caught_up(self._xmpp.address, complete_until_s)
