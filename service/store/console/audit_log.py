"""The audit log of the console.

Each action is recorded before it is carried out. If a process crashes, the outcome of an action may be missing from the
log, but the action itself is always there.
"""

import time
from typing import Final

import msgspec

from service.store.client import keys
from service.store.client.redis_client import RedisRepository, script_command
from service.store.client.streams import read_page

MAX_ENTRIES: Final = 10_000
KEPT_S: Final = 366 * 86_400
"""How long actions are kept in the log (s)."""
_LIMITS: Final = (MAX_ENTRIES, KEPT_S)
_SCRIPT_KEYS: Final = (keys.AUDIT_PENDING, keys.AUDIT_LOG)
_MAX_DURATION_S = 300.0


class AuditedAction(msgspec.Struct, frozen=True):
    """A change that was requested from the console.

    - ``at_s``: when the change was requested (Unix s).
    - ``by``: name of the account; "" for an anonymous client.
    - ``key``: name of the API key; "" if a browser sent the request.
    - ``address``: the client's IP address.
    - ``action``: description of the change in one sentence.
    - ``on``: path of the request.
    - ``status``: HTTP status of the response; 0 if unknown.
    - ``detail``: additional information.
    """

    at_s: float
    by: str
    key: str
    address: str
    action: str
    on: str
    status: int = 0
    detail: str = ""


class AuditRecord(msgspec.Struct, frozen=True):
    """An entry of the audit log: the action, and the id of the entry."""

    id: str
    deed: AuditedAction


class AuditLog(RedisRepository):
    """Writes and reads the audit log, which records the changes that were requested from the console.

    It keeps an action for ``KEPT_S`` seconds, but at most the newest ``MAX_ENTRIES`` actions. Every method may
    raise :class:`service.errors.StoreUnavailable`.
    """

    async def begin(self, action_id: str, action: AuditedAction) -> None:
        """Record that an action begins. ``action_id`` must be unique; the caller passes it to :meth:`end` later."""
        await self._redis.call("HSET", keys.AUDIT_PENDING, action_id, msgspec.msgpack.encode(action))

    async def end(self, action_id: str, action: AuditedAction) -> None:
        """Record the outcome of an action, and move the action to the log.

        ``action_id`` is the id that the caller passed to :meth:`begin`. ``action`` includes the outcome.
        """
        await self._redis.run_script(
            "console_end_action", _SCRIPT_KEYS, action_id, msgspec.msgpack.encode(action), *_LIMITS
        )

    async def page(self, before: str = "", count: int = 50) -> tuple[list[AuditRecord], str]:
        """Return (actions, position): one page of the log, newest first, and the position of the next page.

        The page contains up to ``count`` actions. To read the next page, pass the returned position as ``before``. The
        position is "" if there are no further actions. To read the first page, pass "" as ``before``.
        """
        await self._log_interrupted()
        found, following = await read_page(self._redis, keys.AUDIT_LOG, before, count)
        decode = msgspec.msgpack.Decoder(AuditedAction).decode
        return [AuditRecord(entry_id, decode(fields[b"d"])) for entry_id, fields in found], following

    async def _log_interrupted(self) -> None:
        """Move interrupted actions to the log.

        An action counts as interrupted if :meth:`end` was not called for several minutes, because the console process
        failed.
        """
        begun = await self._redis.call("HGETALL", keys.AUDIT_PENDING)
        long_ago_s = time.time() - _MAX_DURATION_S
        lost = [
            script_command("console_end_action", _SCRIPT_KEYS, note, packed, *_LIMITS)
            for note, packed in begun.items()
            if msgspec.msgpack.decode(packed, type=AuditedAction).at_s < long_ago_s
        ]
        await self._redis.call_many(lost)
