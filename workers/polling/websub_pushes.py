"""Processes documents that WebSub hubs push, which take the place of the next poll of their channel (a feed).

Pushed documents wait in the store. A node takes them from the store only when a slot and the parser are free. If
documents are too large or wait too long, they are dropped, and the channel is polled instead.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from service.errors import HostBlocked, LimitReached, ParseKilled
from service.feeds.sandbox.protocol import Document
from service.model import ChannelId
from service.store.channels.websub_store import WebSubStore
from workers.polling.concurrency_limits import ConcurrencyLane, publisher_of
from workers.polling.poll_state import DetectedUpdate, PollState
from workers.polling.poller import Poller

_SLOT_TIMEOUT_S = 10.0
"""Maximum time for which pushed documents wait for a slot and the parser. Then the channel is polled instead."""

log = structlog.get_logger(__name__)


class PushProcessor:
    """Compares documents that WebSub hubs have pushed with the versions of one node's channels.

    - ``get_state`` returns the state for polling a channel, or None if the channel does not exist.
    - ``on_detected`` is called with each update (set of changes) that a document contains.
    - ``poll`` polls the channel whose state it is given.
    """

    def __init__(
        self,
        websub: WebSubStore,
        poller: Poller,
        *,
        get_state: Callable[[ChannelId], Awaitable[PollState | None]],
        on_detected: Callable[[DetectedUpdate], Awaitable[None]],
        poll: Callable[[PollState], Awaitable[object]],
    ) -> None:
        self._websub = websub
        self._poller = poller
        self._get_state = get_state
        self._on_detected = on_detected
        self._poll = poll
        self._processing: dict[ChannelId, bool] = {}
        """Channels whose documents are being processed; True if more may have arrived since processing began."""

    async def process(self, channel_id: ChannelId) -> None:
        """Compare the documents that a hub has pushed for a channel, or poll the channel instead.

        The channel is polled if the documents are too large, wait too long for a slot, or take too long to parse.

        The call may fail with one of these errors:

        - :class:`HostBlocked` if the channel's host is blocked; the documents are dropped,
        - :class:`LimitReached` if the poll has to wait; the next scheduled poll detects the changes,
        - :class:`PublisherError` if a document cannot be parsed; the next scheduled poll detects the changes.
        """
        if channel_id in self._processing:
            self._processing[channel_id] = True
            return
        self._processing[channel_id] = True
        try:
            while self._processing[channel_id]:
                self._processing[channel_id] = False
                await self._process_queued(channel_id)
        finally:
            del self._processing[channel_id]

    async def _process_queued(self, channel_id: ChannelId) -> None:
        state = await self._get_state(channel_id)
        # A dormant channel needs its whole document, which a push does not contain.
        if state is None or state.channel.dormant:
            await self._websub.drop_pushes(channel_id)
            return
        try:
            lane = await self._poller.prepare_push(state, await self._websub.queued_bytes(channel_id))
            async with _hold_slot(state, lane):
                pushes = await self._websub.take_pushes(channel_id)
                if all(push.body for push in pushes):
                    for push in pushes:
                        headers = {"content-type": push.content_type}
                        pushed = Document(push.body, state.channel.url, headers, partial=True)
                        if update := await self._poller.compare_pushed(state, pushed, lane):
                            await self._on_detected(update)
                    return
        except HostBlocked:
            await self._websub.drop_pushes(channel_id)
            raise
        except (LimitReached, ParseKilled) as error:
            log.info("websub push dropped, will poll", channel=channel_id[:8], error=str(error))
            await self._websub.drop_pushes(channel_id)
        await self._poller.acquire_poll(state)
        await self._poll(state)


@contextlib.asynccontextmanager
async def _hold_slot(state: PollState, lane: ConcurrencyLane) -> AsyncIterator[None]:
    """Hold a slot and the parser of ``lane`` (the fast or the slow lane) for a channel inside this context.

    Raises :class:`LimitReached` if the slot or the parser is not free within ``_SLOT_TIMEOUT_S`` seconds.
    """
    publisher = publisher_of(state)
    async with contextlib.AsyncExitStack() as held:
        try:
            async with asyncio.timeout(_SLOT_TIMEOUT_S):
                for resource in (lane.site(publisher), lane.slot(publisher), lane.parser(publisher)):
                    await held.enter_async_context(resource)
        except TimeoutError:
            raise LimitReached("This worker is overloaded: pushed documents are left to a poll.") from None
        yield
