"""Publishes each public channel as a node of a pubsub service, and deletes the node of what is public no more.

Of all bots with this service one does so, by a lease. That there may be something to do is heard from workers, and
seen by walking over all channels and nodes again and again, so that no news is ever needed. One request is under way
at a time: however slow the service is, or how much there is to publish, what people are told goes on beside it.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Sequence
from typing import Final

import structlog

from bots.link import LinkLost
from bots.publishing import Publishing, PubsubRefused
from bots.tasks import together
from service.clock import Clock
from service.errors import StoreUnavailable
from service.model import ChannelId
from service.store import Store
from service.store.keys import REGISTRY_BUCKETS

RESTS_S: Final = 600.0
"""How long a node is left alone that the service did not want so."""
_LOOKED_AT_ONCE: Final = 100
_BETWEEN_LOOKS_S: Final = 0.1
_BUCKETS_AT_ONCE: Final = 16
_RENEW_EVERY_S: Final = 1.0
_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 300.0
_OF_THE_NODE: Final = frozenset(("bad-request", "not-acceptable", "conflict", "not-allowed"))
"""What a service has against one node or item, rather than against us, or everything."""
_log = structlog.get_logger()


class Nodes:
    """The nodes of one service. :meth:`run` keeps them."""

    def __init__(
        self, store: Store, publishing: Publishing, clock: Clock, *, service: str, every_s: float, lease_ttl_s: float
    ) -> None:
        """All channels are looked over each ``every_s``, or longer."""
        self._store = store
        self._publishing = publishing
        self._clock = clock
        self._service = service
        self._every_s = every_s
        self._lease_ttl_s = lease_ttl_s
        self._lease = f"nodes:{service}"
        self._holder = secrets.token_hex(8)
        self._mine = asyncio.Event()
        self._stirred = asyncio.Event()
        self._due: dict[ChannelId, None] = {}
        self._resting_s: dict[ChannelId, float] = {}

    async def run(self) -> None:
        """Publish until cancelled, whenever no other bot does."""
        try:
            await together(self._hold(), self._hear(), self._walk(), self._work())
        finally:
            with contextlib.suppress(StoreUnavailable):
                await self._store.leases.release(self._lease, self._holder)

    async def _hold(self) -> None:
        """Hold the lease whenever it can be had; while Redis is away nobody can publish anyway."""
        while True:
            with contextlib.suppress(StoreUnavailable):
                held = await self._store.leases.hold(self._lease, self._holder, self._lease_ttl_s)
                (self._mine.clear if held is None else self._mine.set)()
            await asyncio.sleep(_RENEW_EVERY_S)

    # What there is to do.

    async def _hear(self) -> None:
        after = ""
        while True:
            try:
                cids, after = await self._store.nodes.news(after, 5.0)
                if self._mine.is_set():
                    await self._look(cids)
            except StoreUnavailable:
                await asyncio.sleep(_RETRY_S)

    async def _walk(self) -> None:
        while True:
            await self._mine.wait()
            try:
                for first in range(0, len(REGISTRY_BUCKETS), _BUCKETS_AT_ONCE):
                    buckets = REGISTRY_BUCKETS[first : first + _BUCKETS_AT_ONCE]
                    await self._look_over(await self._store.channels.registered(buckets))
                await self._look_over(await self._store.nodes.all(self._service))
            except StoreUnavailable as error:
                _log.warning("nodes are not looked after", reason=str(error))
            await asyncio.sleep(self._every_s)

    async def _look_over(self, cids: Sequence[ChannelId]) -> None:
        for first in range(0, len(cids), _LOOKED_AT_ONCE):
            await self._look(cids[first : first + _LOOKED_AT_ONCE])
            await asyncio.sleep(_BETWEEN_LOOKS_S)

    async def _look(self, cids: Sequence[ChannelId]) -> None:
        now_s = self._clock.monotonic_s()
        self._resting_s = {cid: until_s for cid, until_s in self._resting_s.items() if until_s > now_s}
        awake = [cid for cid in cids if cid not in self._resting_s]
        for cid in await self._publishing.unfinished(awake) if awake else ():
            self._due[cid] = None
            self._stirred.set()

    # What is done.

    async def _work(self) -> None:
        retry_s = _RETRY_S
        while True:
            cid = await self._next()
            try:
                await self._publishing.bring_up(cid)
                await self._look([cid])  # there may be more
            except PubsubRefused as error:
                self._tell(cid, error)
                if error.condition in _OF_THE_NODE:
                    self._rest(cid)
                    continue
            except (LinkLost, TimeoutError, StoreUnavailable) as error:
                _log.warning("publishing waits", service=self._service, retry_s=retry_s, reason=str(error))
            except Exception:  # noqa: BLE001 - whatever it is, it concerns this channel only
                _log.exception("a channel is not published", channel=cid)
                self._rest(cid)
                continue
            else:
                retry_s = _RETRY_S
                continue
            self._due[cid] = None  # behind the others
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, _LONGEST_RETRY_S)

    async def _next(self) -> ChannelId:
        """Wait for a channel that is due, and take it."""
        await self._mine.wait()
        while not self._due:
            self._stirred.clear()
            await self._stirred.wait()
        cid = next(iter(self._due))
        del self._due[cid]
        return cid

    def _rest(self, cid: ChannelId) -> None:
        self._resting_s[cid] = self._clock.monotonic_s() + RESTS_S

    def _tell(self, cid: ChannelId, error: PubsubRefused) -> None:
        _log.warning(
            "a node is refused: may the bot make nodes on the service? (Prosody: admins of the component)",
            service=self._service,
            node=cid,
            condition=error.condition,
        )
