"""The Redis client: runs commands and scripts on a single Redis server or on a Redis Cluster.

Commands that are issued at the same moment share one round trip (``command_batching``). The text of a script is sent
once per connection, and afterwards only its digest (``node_connections``). The client raises :class:`StoreUnavailable`
if Redis is unavailable, and the driver's own error if a command is invalid.
"""

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, partial
from importlib.resources import files
from typing import Any

from redis import exceptions

from service.errors import StoreIdentityMismatch, StoreUnavailable
from service.observability.metrics import REDIS_ERRORS
from service.settings import Settings
from service.store.client.cluster_routing import READ_ONLY_MARKER, REPLY_TIMEOUT_S, Address, NodePools, SlotMap
from service.store.client.command_batching import COMMANDS_PER_ROUND_TRIP, CommandBatcher, Send, send_in_groups
from service.store.client.data_loss_guard import DataLossGuard
from service.store.client.node_connections import Command, Value

__all__ = ["MAX_BLOCK_S", "Command", "RedisClient", "RedisRepository", "Value", "script_command"]

MAX_BLOCK_S = 10.0
"""Maximum time in seconds that a blocking command may block."""

# Maximum connections per node, by kind of command. A command waits while all are busy: Redis would not get faster with
# more connections, and each costs a file descriptor.
_PROMPT_CONNECTIONS = 32
_BLOCKING_CONNECTIONS = 100
_URGENT_CONNECTIONS = 4
_IDENTITY_CONNECTIONS = 2

# Codes of temporary errors. Within scripts and pipelines they are wrapped in other text, so they are searched for.
_OPERATIONAL = re.compile(
    r"\b(MISCONF|NOREPLICAS|LOADING|MASTERDOWN|READONLY|OOM|CLUSTERDOWN|TRYAGAIN|BUSY|NOPERM|UNBLOCKED)\b"
)

# Temporary errors whose codes the driver removes from the text.
_REFUSALS = (
    exceptions.ReadOnlyError,
    exceptions.OutOfMemoryError,
    exceptions.NoPermissionError,
    exceptions.AskError,
    exceptions.TryAgainError,
    exceptions.ClusterDownError,  # or its subclass MasterDownError
)

_INCLUDE = "-- include "
"""Prefix of a line in a script that includes a library, which is another script that defines local functions.

The rest of the line is the library's name. The line is replaced by the text of the library.
"""


@cache
def _script(name: str) -> str:
    """Return the text of ``scripts/NAME.lua``, with comments removed so that fewer bytes are sent to Redis."""
    lines = files("service.store").joinpath("scripts", f"{name}.lua").read_text(encoding="utf-8").splitlines()
    kept = lines[:1] if lines[0] == READ_ONLY_MARKER else []
    for line in lines:
        if line.startswith(_INCLUDE):
            kept.append(_script(line.removeprefix(_INCLUDE)))
        elif not line.lstrip().startswith("--"):
            kept.append(line.strip())
    return "\n".join(kept)


def script_command(name: str, keys: Sequence[str], *arguments: Value) -> Command:
    """Return a command that runs ``scripts/NAME.lua`` with ``keys`` as ``KEYS`` and ``arguments`` as ``ARGV``.

    All keys must be in the same cluster slot.
    """
    return ("EVAL", _script(name), len(keys), *keys, *arguments)


def _translate(error: Exception) -> Exception:
    """Return the exception to raise in place of ``error``, which the driver has raised.

    This is :class:`StoreUnavailable`, or ``error`` itself if the command was invalid.
    """
    if isinstance(error, exceptions.ResponseError):
        if not (_OPERATIONAL.search(str(error)) or isinstance(error, _REFUSALS)):
            return error
        REDIS_ERRORS.labels("refused").inc()
        translated = StoreUnavailable(f"Redis refuses for now: {error}")
    elif isinstance(error, (exceptions.RedisError, OSError)):
        REDIS_ERRORS.labels("unreachable").inc()
        translated = StoreUnavailable(f"Redis does not answer ({error}). Is it running, and is redis_url right?")
    else:
        return error
    translated.__cause__ = error
    return translated


def _find_error(commands: Sequence[Command], replies: Sequence[Any]) -> Exception | None:
    """Return the exception to raise for the first command that failed; None if none failed.

    ``replies`` contains each command's reply, which is an exception if the command failed.
    """
    for index, reply in enumerate(replies):
        if isinstance(reply, Exception):
            if isinstance(reply, exceptions.ResponseError):
                reply.add_note(f"It was the reply to {commands[index][0]!r}, command {index + 1} of {len(commands)}.")
            return _translate(reply)
    return None


class RedisClient:
    """A client for a single Redis server or a Redis Cluster.

    It has separate connections for five kinds of commands:

    - ordinary commands, which Redis answers immediately
    - blocking commands, for which Redis may wait before it answers
    - commands that must not run twice
    - urgent scripts, which must not wait for a free connection
    - commands that detect data loss, which run even if the store must not be used; while it may be used, those for a
      single server are sent with the urgent scripts

    If the connection breaks before the reply has arrived, a command is sent again, unless it must not run twice. Every
    method that sends commands may raise :class:`StoreUnavailable`.
    """

    def __init__(self, settings: Settings, *, is_guarded: bool = True) -> None:
        """Create the connection pools. Connections are opened only when they are needed.

        If ``is_guarded`` is False, the client can also be used with a store that has lost data, for example to restore
        a backup. Raises :class:`SettingsInvalid` if the store's identity file cannot be read.
        """
        self.guard = DataLossGuard(settings.store_identity_file)
        guard = self.guard if is_guarded else None
        self._slots = SlotMap()
        open_pools = partial(NodePools, settings, self._slots)
        blocking_s = MAX_BLOCK_S + REPLY_TIMEOUT_S
        self._prompt = open_pools(guard, _PROMPT_CONNECTIONS, REPLY_TIMEOUT_S, tries=4, replicated=True)
        self._blocking = open_pools(guard, _BLOCKING_CONNECTIONS, blocking_s, tries=4, replicated=False)
        self._once = open_pools(guard, _PROMPT_CONNECTIONS, REPLY_TIMEOUT_S, tries=1, replicated=True)
        self._urgent = open_pools(guard, _URGENT_CONNECTIONS, REPLY_TIMEOUT_S, tries=4, replicated=False)
        self._unguarded = open_pools(None, _IDENTITY_CONNECTIONS, REPLY_TIMEOUT_S, tries=4, replicated=True)
        self._batcher = CommandBatcher(self._prompt, self._slots)
        self._urgent_batcher = CommandBatcher(self._urgent, self._slots)

    async def call(self, *command: Value) -> Any:
        """Run one command and return its reply."""
        return (await self.call_many([command]))[0]

    async def run_script(self, name: str, keys: Sequence[str], *arguments: Value) -> Any:
        """Run ``scripts/NAME.lua`` with ``keys`` as ``KEYS`` and ``arguments`` as ``ARGV``; return the reply."""
        return await self.call(*script_command(name, keys, *arguments))

    async def time_s(self) -> float:
        """Return the Unix time in seconds according to Redis's clock, which all processes share."""
        seconds, microseconds = await self.call("TIME")
        return float(seconds) + float(microseconds) / 1e6

    async def call_many(self, commands: Sequence[Command]) -> list[Any]:
        """Run independent commands and return their replies, in order.

        Commands for the same cluster slot run in the given order. If any commands fail, the error of the first failed
        one is raised.
        """
        if len(commands) > COMMANDS_PER_ROUND_TRIP:
            return await self._call(self._prompt.call_each, commands)
        if not commands:
            return []
        replies = await self._batcher.submit(commands)
        if error := _find_error(commands, replies):
            raise error
        return replies

    async def call_many_once(self, commands: Sequence[Command]) -> list[Any]:
        """Run independent commands like :meth:`call_many`, but never send a command twice.

        If :class:`StoreUnavailable` is raised, Redis may or may not have run the commands.
        """
        return await self._call(self._once.call_each, commands)

    async def call_blocking(self, *command: Value) -> Any:
        """Run one command that may block for up to ``MAX_BLOCK_S`` seconds, and return its reply."""
        return (await self._call(self._blocking.call_each, [command]))[0]

    async def run_urgent_script(self, name: str, keys: Sequence[str], *arguments: Value) -> Any:
        """Run a script that must not wait for a free connection, such as a heartbeat; return the script's reply."""
        return (await self._call(self._urgent_batcher.submit, [script_command(name, keys, *arguments)]))[0]

    async def call_unguarded(self, *command: Value) -> Any:
        """Run one command and return its reply, even if the store must not be used because it has lost data."""
        if not self._slots:  # A single server needs only one round trip for this command and for heartbeats.
            with suppress(StoreIdentityMismatch):
                return (await self._call(self._urgent_batcher.submit, [command]))[0]
        return (await self._call(self._unguarded.call_each, [command]))[0]

    async def call_on_node(self, node: Address, *command: Value) -> Any:
        """Run a command that has no keys on the cluster node at the address ``node``, and return its reply."""
        return (await self._call(partial(self._prompt.call_on_node, node), [command]))[0]

    async def _call(self, send: Send, commands: Sequence[Command]) -> list[Any]:
        replies = await send_in_groups(send, commands)
        if error := _find_error(commands, replies):
            raise error
        return replies

    def node_of(self, command: Command) -> Address | None:
        """Return the address of the cluster node to which ``command`` would be sent.

        The result is None if Redis is not known to be a cluster, or if the command's node is not known yet.
        """
        return self._prompt.node_of(command)

    def primaries(self) -> list[Address]:
        """Return the addresses of the cluster's master nodes; empty if Redis is not known to be a cluster."""
        return sorted(set(self._slots.masters))

    async def close(self) -> None:
        """Close all connections."""
        pools = (self._prompt, self._blocking, self._once, self._urgent, self._unguarded)
        await asyncio.gather(*(each.close() for each in pools))


class RedisRepository:
    """Base class for repositories. Each repository reads and writes one kind of state in Redis."""

    def __init__(self, redis: RedisClient) -> None:
        """Create the repository. It sends its commands through ``redis``."""
        self._redis = redis
