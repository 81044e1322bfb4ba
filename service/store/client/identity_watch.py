"""The watch over the store's identity: the part of :mod:`service.store.client.identity` that runs in every program."""

import asyncio
import secrets
from typing import Final

import structlog

from service.errors import StoreIdentityMismatch, StoreUnavailable
from service.store.client import keys
from service.store.client.connection import RedisClient, script_command
from service.store.client.identity import (
    BEHIND,
    COUNTER_INTERVAL_MS,
    EMPTIED,
    MAX_COUNTER_LAG,
    READ_IDENTITY,
    TrustedIdentity,
    parse_identity,
)

_LOOK_EVERY_S: Final = COUNTER_INTERVAL_MS / 1_000
_KEEP_EVERY_MS: Final = 60_000

log = structlog.get_logger(__name__)


class IdentityMonitor:
    """Looks at the store's identity again and again, and lets its counter grow."""

    def __init__(self, link: RedisClient) -> None:
        """Watch over what this link leads to."""
        self._link = link
        self._kept: TrustedIdentity | None = None
        self._is_refused = False

    async def run(self) -> None:
        """Watch until cancelled; what was seen last is kept in the file."""
        try:
            while True:
                try:
                    await self.refresh()
                except StoreUnavailable as error:
                    log.debug("store identity unknown", error=str(error))
                self._log_changes()
                if self._is_due():
                    await asyncio.to_thread(self._keep)
                await asyncio.sleep(_LOOK_EVERY_S)
        finally:
            self._keep()

    async def refresh(self) -> None:
        """Find out whether the store may be used, and let its counter grow.

        Raises :class:`StoreUnavailable` if Redis does not answer.
        """
        guard = self._link.guard
        seen = guard.reload()
        new = seen.fleet if seen else secrets.token_hex(16)
        reply = await self._link.call_unguarded(
            *script_command(
                "identity_grow",
                [keys.STORE_IDENTITY],
                seen.fleet if seen else "",
                seen.counter - MAX_COUNTER_LAG if seen else 0,
                "" if seen and seen.in_use else new,
                COUNTER_INTERVAL_MS,
            )
        )
        guard.evaluate(parse_identity(reply), seen)
        found = guard.found
        if guard.reason in (EMPTIED, BEHIND) and not found.refused and seen is not None:
            mark = script_command("identity_refuse", [keys.STORE_IDENTITY], seen.fleet, found.accepted_ms, guard.reason)
            await self._link.call_unguarded(*mark)

    def check(self) -> None:
        """Return if the store may be used, as far as is known. Raises :class:`StoreIdentityMismatch`."""
        self._link.guard.check()

    async def verify(self) -> None:
        """Verify the store's identity now. Raises :class:`StoreIdentityMismatch` and :class:`StoreUnavailable`."""
        guard, seen = self._link.guard, self._link.guard.seen
        guard.evaluate(parse_identity(await self._link.call(*READ_IDENTITY)), seen)
        self.check()

    async def accept(self) -> None:
        """Have every program use the store as it is: it gets the fleet's id and a counter above all that was seen.

        Raises :class:`StoreUnavailable`.
        """
        guard, seen = self._link.guard, self._link.guard.seen or TrustedIdentity("")
        reply = await self._link.call_unguarded(
            *script_command(
                "identity_accept",
                [keys.STORE_IDENTITY],
                seen.fleet,
                secrets.token_hex(16),
                seen.counter,
                seen.at_ms,
            )
        )
        guard.evaluate(parse_identity(reply), guard.seen)
        self.check()
        log.warning("store accepted", counter=guard.found.counter)
        self._log_changes()
        await asyncio.to_thread(self._keep)

    def _log_changes(self) -> None:
        """Say once that the store is refused, and once that it is used again."""
        try:
            self.check()
        except StoreIdentityMismatch as error:
            if not self._is_refused:
                log.error("store refused", error=str(error))  # noqa: TRY400 - no bug, no traceback
            self._is_refused = True
            return
        if self._is_refused:
            log.info("store in use again")
        self._is_refused = False

    def _is_due(self) -> bool:
        """Return whether what was seen is to be kept: when the store comes into use, once a minute, when it changes."""
        seen, kept = self._link.guard.seen, self._kept
        if seen is None or not seen.in_use:
            return False
        return (
            kept is None
            or not kept.in_use
            or kept.fleet != seen.fleet
            or not 0 <= seen.at_ms - kept.at_ms < _KEEP_EVERY_MS
        )

    def _keep(self) -> None:
        guard = self._link.guard
        seen = guard.seen
        if guard.file is None or seen is None or not seen.in_use or seen == self._kept:
            return
        self._kept = seen
        try:
            guard.file.write(seen)
        except OSError as error:
            log.warning("store identity not kept", error=str(error))
