"""Clients of Redis, for single commands, pipelines, scripts and batches. They translate the driver's errors.

:class:`RedisClient` sends commands at once. :class:`BatchingClient` collects the commands of one iteration of the event
loop and sends them in one round trip: a single command takes about 0.3 ms of processor time, and a command among many
takes a tenth of that. In a cluster, commands are batched by node, so that an unavailable node delays only its own
commands.

A script is sent in full once per connection, and by its digest afterwards (see ``cluster_routing``).
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

from redis import exceptions

from service.errors import StoreUnavailable
from service.observability.metrics import REDIS_ERRORS
from service.settings import Settings
from service.store.client.cluster_routing import (
    READ_ONLY_MARKER,
    REPLY_TIMEOUT_S,
    Address,
    NodePools,
    SlotMapCache,
    raise_errors,
)
from service.store.client.identity import IdentityGuard
from service.store.client.node_connections import Command, Value

__all__ = [
    "MAX_BLOCK_S",
    "BatchedRepository",
    "BatchingClient",
    "Command",
    "RedisClient",
    "RedisRepository",
    "Value",
    "script_command",
]

_PER_ROUND_TRIP = 500
"""Maximum number of commands in one round trip. More would delay other commands and grow the buffers of the process."""

MAX_BLOCK_S = 5.0
"""Longest time that a blocking command may block."""

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
    exceptions.ClusterDownError,
    exceptions.MasterDownError,
)

_INCLUDE = "-- include "
"""Prefix of a line in a script that is replaced by the text of another script: a library of local functions."""


@cache
def _script(name: str) -> str:
    """Return the text of ``scripts/NAME.lua`` without comments, so that fewer bytes are sent with every command."""
    lines = files("service.store").joinpath("scripts", f"{name}.lua").read_text(encoding="utf-8").splitlines()
    kept = lines[:1] if lines[0] == READ_ONLY_MARKER else []
    for line in lines:
        if line.startswith(_INCLUDE):
            kept.append(_script(line.removeprefix(_INCLUDE)))
        elif not line.lstrip().startswith("--"):
            kept.append(line.strip())
    return "\n".join(kept)


def script_command(name: str, keys: Sequence[str], *arguments: Value) -> Command:
    """Return the command that runs ``scripts/NAME.lua`` with these ``KEYS`` and ``ARGV``.

    All keys must be in one slot.
    """
    return ("EVAL", _script(name), len(keys), *keys, *arguments)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
        _stay_cancelled()
    except exceptions.ResponseError as error:
        if _OPERATIONAL.search(str(error)) or isinstance(error, _REFUSALS):
            REDIS_ERRORS.labels("refused").inc()
            raise StoreUnavailable(f"Redis refuses for now: {error}") from error
        raise
    except (exceptions.RedisError, OSError, TimeoutError) as error:
        REDIS_ERRORS.labels("unreachable").inc()
        raise StoreUnavailable(f"Redis does not answer ({error}). Is it running, and is redis_url right?") from error


def _stay_cancelled() -> None:
    """Raise CancelledError if the current task was cancelled and the driver has swallowed the cancellation.

    The driver sends within ``asyncio.wait_for``, which before Python 3.12 drops a cancellation that arrives when its
    inner task ends. An endless loop that is cancelled at that moment would otherwise never stop.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class RedisClient:
    """A client of one Redis or of a Redis Cluster.

    It has separate connection pools for four kinds of commands: those that reply at once, those that block, those that
    must not be repeated, and urgent scripts. Except for the third kind, a command is sent again if the connection
    breaks before the reply, or if the slot has moved to another node.
    """

    def __init__(self, settings: Settings, *, is_guarded: bool = True) -> None:
        """Create the connection pools. Connections are opened when they are needed.

        Unless ``is_guarded``, the client uses the store whatever its identity is: for programs that replace its data.
        Raises :class:`SettingsInvalid`.
        """
        slots = SlotMapCache()
        self.guard = IdentityGuard(settings.store_identity_file)
        guard = self.guard if is_guarded else None
        blocking_s = MAX_BLOCK_S + REPLY_TIMEOUT_S
        self._prompt = NodePools(settings, slots, guard, _PROMPT_CONNECTIONS, REPLY_TIMEOUT_S, tries=4, replicated=True)
        self._blocking = NodePools(settings, slots, guard, _BLOCKING_CONNECTIONS, blocking_s, tries=4, replicated=False)
        self._once = NodePools(settings, slots, guard, _PROMPT_CONNECTIONS, REPLY_TIMEOUT_S, tries=1, replicated=True)
        self._urgent = NodePools(
            settings, slots, guard, _URGENT_CONNECTIONS, REPLY_TIMEOUT_S, tries=4, replicated=False
        )
        self._unguarded = NodePools(
            settings, slots, None, _IDENTITY_CONNECTIONS, REPLY_TIMEOUT_S, tries=4, replicated=True
        )

    async def call(self, *command: Value) -> Any:
        """Run one command and return its reply. Raises :class:`StoreUnavailable`."""
        with _translated():
            return await self._prompt.call(command)

    async def call_blocking(self, *command: Value) -> Any:
        """Run one command that blocks for at most ``MAX_BLOCK_S`` seconds. Raises :class:`StoreUnavailable`."""
        with _translated():
            return await self._blocking.call(command)

    async def run_urgent_script(self, name: str, keys: Sequence[str], *arguments: Value) -> Any:
        """Run a script, such as a heartbeat, that must not wait for a free connection.

        Raises :class:`StoreUnavailable`.
        """
        with _translated():
            return await self._urgent.call(script_command(name, keys, *arguments))

    async def call_unguarded(self, *command: Value) -> Any:
        """Run one command about the store's identity. It runs even if this process refuses to use the store.

        Raises :class:`StoreUnavailable`.
        """
        with _translated():
            return await self._unguarded.call(command)

    async def run_script(self, name: str, keys: Sequence[str], *arguments: Value) -> Any:
        """Run ``scripts/NAME.lua`` with these ``KEYS`` and ``ARGV``; return its reply.

        Raises :class:`StoreUnavailable`.
        """
        return await self.call(*script_command(name, keys, *arguments))

    async def call_many(self, commands: Sequence[Command]) -> list[Any]:
        """Run independent commands and return their replies, in order.

        The commands are sent in groups of ``_PER_ROUND_TRIP``. Commands of the same slot run in the given order. Raises
        :class:`StoreUnavailable`, or the error of the first command that failed.
        """
        return await _call_in_chunks(self._prompt, commands)

    async def call_each(self, commands: Sequence[Command]) -> list[Any]:
        """Run independent commands like :meth:`call_many`. The reply of a failed command is its exception."""
        replies: list[Any] = []
        with _translated():
            for chunk in _chunks(commands):
                replies += await self._prompt.call_each(chunk)
        return [
            _translate(command, reply) if isinstance(reply, Exception) else reply
            for command, reply in zip(commands, replies, strict=True)
        ]

    async def call_many_once(self, commands: Sequence[Command]) -> list[Any]:
        """Run independent commands like :meth:`call_many`, but never repeat a command.

        Raises :class:`StoreUnavailable`; it is then unknown whether Redis has run the commands.
        """
        return await _call_in_chunks(self._once, commands)

    @property
    def is_cluster(self) -> bool:
        """Whether Redis is known to be a cluster."""
        return self._prompt.is_cluster

    def node_of(self, command: Command) -> Address | None:
        """Return the address of the cluster node to which a command is sent.

        The result is None if Redis is not known to be a cluster, or if the node is not known yet.
        """
        return self._prompt.node_of(command)

    def primaries(self) -> list[Address]:
        """Return the addresses of the master nodes of the cluster; empty if Redis is not known to be a cluster."""
        return self._prompt.masters()

    async def call_on_node(self, node: Address, *command: Value) -> Any:
        """Run a command without keys on a certain node of the cluster. Raises :class:`StoreUnavailable`."""
        with _translated():
            return await self._prompt.call_on_node(node, command)

    async def close(self) -> None:
        """Close all connections, concurrently; if the caller is cancelled, all of them are still being closed."""
        pools = (self._prompt, self._blocking, self._once, self._urgent, self._unguarded)
        await asyncio.gather(*(each.close() for each in pools))


async def _call_in_chunks(pools: NodePools, commands: Sequence[Command]) -> list[Any]:
    replies: list[Any] = []
    with _translated():
        for chunk in _chunks(commands):
            replies += raise_errors(chunk, await pools.call_each(chunk))
    return replies


def _chunks(commands: Sequence[Command]) -> Iterator[Sequence[Command]]:
    return (commands[start : start + _PER_ROUND_TRIP] for start in range(0, len(commands), _PER_ROUND_TRIP))


def _translate(command: Command, error: Exception) -> Exception:
    """Return the exception to raise in place of ``error``, which the driver raised for ``command``."""
    try:
        with _translated():
            raise_errors([command], [error])
    except Exception as raised:  # noqa: BLE001 - any error is returned to the caller
        return raised
    return error


_PendingCall = tuple[Sequence[Command], asyncio.Future[list[Any]]]


class RedisRepository:
    """Base of the repositories of the store that use a :class:`RedisClient`."""

    def __init__(self, redis: RedisClient) -> None:
        """Create the repository, which sends its commands through ``redis``."""
        self._redis = redis


class BatchingClient:
    """A client that sends the commands of one iteration of the event loop together.

    Commands may be repeated, like those of :meth:`RedisClient.call_many`. An error affects only the caller whose
    command failed.
    """

    def __init__(self, redis: RedisClient) -> None:
        """Create the client, which sends the collected commands through ``redis``."""
        self._redis = redis
        self._pending: list[_PendingCall] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def call_many(self, commands: Sequence[Command]) -> list[Any]:
        """Run independent commands in order and return their replies. Raises :class:`StoreUnavailable`."""
        if not commands:
            return []
        loop = asyncio.get_running_loop()
        if not self._pending:
            loop.call_soon(self._send)
        replies: asyncio.Future[list[Any]] = loop.create_future()
        self._pending.append((commands, replies))
        return await replies

    async def call(self, *command: Value) -> Any:
        """Run one command and return its reply. Raises :class:`StoreUnavailable`."""
        return (await self.call_many([command]))[0]

    async def run_script(self, name: str, keys: Sequence[str], *arguments: Value) -> Any:
        """Run ``scripts/NAME.lua`` with these ``KEYS`` and ``ARGV``; return its reply.

        Raises :class:`StoreUnavailable`.
        """
        return await self.call(*script_command(name, keys, *arguments))

    def _send(self) -> None:
        by_nodes: dict[frozenset[Address | None], list[_PendingCall]] = {}
        if self._redis.is_cluster:
            for call in self._pending:
                nodes = frozenset(self._redis.node_of(command) for command in call[0])
                by_nodes.setdefault(nodes, []).append(call)
        else:
            by_nodes[frozenset()] = self._pending
        self._pending = []
        for pending in by_nodes.values():
            sending = asyncio.create_task(self._run(pending))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    async def _run(self, pending: Sequence[_PendingCall]) -> None:
        try:
            received = iter(await self._redis.call_each([command for commands, _ in pending for command in commands]))
        except Exception as error:  # noqa: BLE001 - a bug is raised to the callers, too, or they would wait for ever
            for _, replies in pending:
                if not replies.done():
                    replies.set_exception(type(error)(str(error)) if isinstance(error, StoreUnavailable) else error)
            return
        for commands, replies in pending:
            own = [next(received) for _ in commands]
            failure = next((reply for reply in own if isinstance(reply, Exception)), None)
            if replies.done():  # its caller was cancelled meanwhile
                continue
            if failure is not None:
                replies.set_exception(failure)
            else:
                replies.set_result(own)


class BatchedRepository:
    """Base of the repositories of the store that use a :class:`BatchingClient`."""

    def __init__(self, redis: BatchingClient) -> None:
        """Create the repository, which sends its commands through ``redis``."""
        self._redis = redis
