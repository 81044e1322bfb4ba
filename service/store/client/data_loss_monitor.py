"""The monitor that detects when the store has lost data; see :mod:`service.store.client.data_loss_guard`."""

import asyncio
import secrets
from typing import Final

import structlog

from service.errors import StoreUnavailable
from service.observability.metrics import STORE_REFUSED
from service.settings import SettingsInvalid
from service.store.client import keys
from service.store.client.data_loss_guard import (
    BEHIND,
    COUNTER_INTERVAL_MS,
    EMPTIED,
    MAX_COUNTER_LAG,
    NEEDED_SCHEMA_VERSION,
    READ_IDENTITY,
    SCHEMA_VERSION,
    TrustedIdentity,
    parse_identity,
)
from service.store.client.erasure_file import ErasureFile
from service.store.client.redis_client import RedisClient, script_command
from service.tick_timer import TickTimer

_CHECK_INTERVAL_S: Final = COUNTER_INTERVAL_MS / 1_000
_SAVE_INTERVAL_MS: Final = 60_000
_ERASURES_READ_S: Final = 600
"""Length in seconds of the period whose erasures are written to the erasure file at each save.

The period is many times the interval between two saves.
"""

log = structlog.get_logger(__name__)


class DataLossMonitor:
    """Regularly checks whether the store has lost data, and increments the store's counter.

    Every process runs one monitor.
    """

    def __init__(self, redis: RedisClient) -> None:
        self._redis = redis
        self._saved = TrustedIdentity()
        self._is_refused = False
        self._has_saved_erasures = False

    async def run(self, timer: TickTimer) -> None:
        """Check the store about every two seconds, timed by ``timer``, until the task is cancelled.

        The monitor also saves the last trusted identity and recent erasures of users in files.
        """
        try:
            while True:
                try:
                    await self.refresh()
                except StoreUnavailable as error:
                    log.debug("store identity not read, store unavailable", error=str(error))
                self._log_changes()
                if self._is_save_due():
                    await self._save_erasures()
                    await asyncio.to_thread(self._save)
                await timer.sleep(_CHECK_INTERVAL_S)
        finally:
            self._save()

    async def refresh(self) -> None:
        """Read the store's identity, and decide whether the store may be used.

        If the last increment of the store's counter was long enough ago, the counter is incremented. If the store has
        lost data, it is marked as refused, which stops all processes from using it. Raises :class:`StoreUnavailable` if
        Redis does not reply.
        """
        guard = self._redis.guard
        seen = guard.reload()
        reply = await self._redis.call_unguarded(
            *script_command(
                "identity_increment",
                [keys.STORE_IDENTITY],
                seen.fleet,
                seen.counter - MAX_COUNTER_LAG,
                "" if seen.in_use else seen.fleet or secrets.token_hex(16),
                COUNTER_INTERVAL_MS,
                SCHEMA_VERSION,
                NEEDED_SCHEMA_VERSION,
            )
        )
        guard.evaluate(parse_identity(reply), seen)
        found = guard.current
        if guard.reason in (EMPTIED, BEHIND) and not found.refused:
            mark = script_command("identity_refuse", [keys.STORE_IDENTITY], seen.fleet, found.accepted_ms, guard.reason)
            await self._redis.call_unguarded(*mark)

    def check(self) -> None:
        """Raise :class:`StoreIdentityMismatch` if the store must not be used, according to the last check."""
        self._redis.guard.check()

    async def verify(self) -> None:
        """Read the store's identity, and check whether the store may be used.

        Raises :class:`StoreIdentityMismatch` if it must not be used, and :class:`StoreUnavailable` if Redis does not
        reply.
        """
        guard, seen = self._redis.guard, self._redis.guard.trusted
        guard.evaluate(parse_identity(await self._redis.call(*READ_IDENTITY)), seen)
        self.check()

    async def accept(self, fleet: str = "", counter: int = 0) -> None:
        """Accept the store with its present data, so that all processes use it again.

        - The store gets the fleet id that this machine trusts, or ``fleet`` if this machine trusts none. If ``fleet``
          is "" too, the store keeps its own id, or gets a new id if it has none.
        - The store's counter is raised above its present value, above ``counter``, and above the value that this
          process trusts.

        Raises :class:`StoreUnavailable` if Redis is unavailable.
        """
        guard, seen = self._redis.guard, self._redis.guard.trusted
        reply = await self._redis.call_unguarded(
            *script_command(
                "identity_accept",
                [keys.STORE_IDENTITY],
                seen.fleet or fleet,
                secrets.token_hex(16),
                max(seen.counter, counter),
                seen.at_ms,
            )
        )
        guard.evaluate(parse_identity(reply), guard.trusted)
        self.check()
        log.warning("store accepted despite possible data loss", store_counter=guard.current.counter)
        self._log_changes()
        await asyncio.to_thread(self._save)

    def _log_changes(self) -> None:
        """Write a log message when this process stops using the store, and another when it uses the store again."""
        is_refused = bool(self._redis.guard.reason)
        STORE_REFUSED.set(is_refused)
        if is_refused and not self._is_refused:
            log.error("store rejected, identity mismatch", error=self._redis.guard.explanation)
        elif self._is_refused and not is_refused:
            log.info("store identity verified, work resumed")
        self._is_refused = is_refused

    def _is_save_due(self) -> bool:
        """Return whether the trusted identity should be saved in the file now.

        Nothing is saved until the store has been in use for a while (:attr:`TrustedIdentity.in_use`). From then on, the
        identity is saved once a minute, and also when the fleet id changes.
        """
        seen, saved = self._redis.guard.trusted, self._saved
        is_saved = saved.fleet == seen.fleet and 0 <= seen.at_ms - saved.at_ms < _SAVE_INTERVAL_MS
        return seen.in_use and not is_saved

    async def _save_erasures(self) -> None:
        """Write recent erasures of users to the erasure file, so that they survive the loss of the store.

        The first call writes all erasures that the store lists. Later calls write only erasures of the last few
        minutes.
        """
        guard = self._redis.guard
        if guard.file is None or guard.reason:
            return
        since_s = guard.trusted.at_ms // 1000 - _ERASURES_READ_S if self._has_saved_erasures else "-inf"
        try:
            found = await self._redis.call("ZRANGE", keys.ERASED_USERS, since_s, "+inf", "BYSCORE", "WITHSCORES")
            erased = {uid.decode(): int(at_s) for uid, at_s in found}
            await asyncio.to_thread(ErasureFile(guard.file.path).add, erased, guard.trusted.at_ms // 1000)
        except (StoreUnavailable, SettingsInvalid, OSError) as error:
            log.warning("writing file of erased users failed", error=str(error))
            return
        self._has_saved_erasures = True

    def _save(self) -> None:
        guard = self._redis.guard
        seen = guard.trusted
        if guard.file is None or not seen.in_use or seen == self._saved:
            return
        self._saved = seen
        try:
            guard.file.write(seen)
        except OSError as error:
            log.warning("store identity file write failed", error=str(error))
