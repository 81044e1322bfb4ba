"""The one way to Redis: commands, pipelines and scripts, with drivers' errors translated.

Scripts are sent whole with EVAL: Redis caches them by their digest anyway, and so neither SCRIPT
FLUSH nor a new master in a cluster can leave us with a script it does not know.

:class:`BatchingClient` sends commands that are given in the same turn of the event loop as one: a command alone costs a
worker some 0.3 ms of processor time, one among many a tenth of that. In a cluster only those of the same node go
together: what waits for a node that is down does not hold up the rest.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Any

from redis import exceptions

from service.errors import StoreUnavailable
from service.settings import Settings
from service.store.client.cluster_routing import (
    READ_ONLY_MARKER,
    REPLY_TIMEOUT_S,
    Address,
    Command,
    NodePools,
    SlotMapCache,
    Value,
    raise_errors,
)
from service.store.client.identity import IdentityGuard

__all__ = [
    "MAX_BLOCK_S",
    "BatchedRepository",
    "BatchingClient",
    "Command",
    "RedisClient",
    "RedisRepository",
    "Value",
    "script_command",
    "script_digest",
]

_PER_ROUND_TRIP = 500
"""Commands written at once: more would cost memory that a process keeps for good, and hold up others."""

MAX_BLOCK_S = 5.0

# Of each lane, to each node. Who comes when all are busy waits; more would not make Redis faster, and cost descriptors.
_PROMPT_CONNECTIONS = 32
_BLOCKING_CONNECTIONS = 100
_VITAL_CONNECTIONS = 4
_IDENTITY_CONNECTIONS = 2

# Replies that say "not now" although they come as plain errors; scripts and pipelines wrap them in words of their own.
_OPERATIONAL = re.compile(
    r"\b(MISCONF|NOREPLICAS|LOADING|MASTERDOWN|READONLY|OOM|CLUSTERDOWN|TRYAGAIN|BUSY|NOPERM|UNBLOCKED)\b"
)

# The driver takes their code words away.
_REFUSALS = (
    exceptions.ReadOnlyError,
    exceptions.OutOfMemoryError,
    exceptions.NoPermissionError,
    exceptions.AskError,
    exceptions.TryAgainError,
    exceptions.ClusterDownError,
    exceptions.MasterDownError,
)

_WITH = "-- with "
"""Begins a line of a script that another one takes the place of: functions that several have in common."""


@cache
def _script(name: str) -> str:
    """Return a script without its comments, which need not travel with every command."""
    lines = files("service.store").joinpath("scripts", f"{name}.lua").read_text(encoding="utf-8").splitlines()
    kept = lines[:1] if lines[0] == READ_ONLY_MARKER else []
    for line in lines:
        if line.startswith(_WITH):
            kept.append(_script(line.removeprefix(_WITH)))
        elif not line.lstrip().startswith("--"):
            kept.append(line.strip())
    return "\n".join(kept)


def script_command(name: str, keys: Sequence[str], *arguments: Value) -> Command:
    """Return the command that runs ``scripts/NAME.lua``; all keys must be of one slot."""
    return ("EVAL", _script(name), len(keys), *keys, *arguments)


@cache
def script_digest(name: str) -> str:
    """Return the name by which Redis knows ``scripts/NAME.lua`` once it was sent whole."""
    return sha1(_script(name).encode(), usedforsecurity=False).hexdigest()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
        _stay_cancelled()
    except exceptions.ResponseError as error:
        if _OPERATIONAL.search(str(error)) or isinstance(error, _REFUSALS):
            raise StoreUnavailable(f"Redis refuses for now: {error}") from error
        raise
    except (exceptions.RedisError, OSError, TimeoutError) as error:
        raise StoreUnavailable(f"Redis does not answer ({error}). Is it running, and is redis_url right?") from error


def _stay_cancelled() -> None:
    """Raise the cancellation that a driver swallowed.

    redis sends within ``asyncio.wait_for``, which before Python 3.12 drops a cancellation that
    comes as its inner task ends; a loop cancelled at that moment would otherwise go on for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class RedisClient:
    """Lanes to a Redis or a Redis Cluster: for commands that answer at once, block, are sent only once, or are vital.

    What may be repeated is sent again when its connection breaks before the answer, or its slot has a new master.
    """

    def __init__(self, settings: Settings) -> None:
        """Open nothing yet; connections are made on demand and kept. Raises SettingsInvalid."""
        slots = SlotMapCache()
        self.guard = guard = IdentityGuard(settings.store_identity_file)
        blocking_s = MAX_BLOCK_S + REPLY_TIMEOUT_S
        self._prompt = NodePools(settings, slots, guard, _PROMPT_CONNECTIONS, REPLY_TIMEOUT_S, tries=4, copied=True)
        self._blocking = NodePools(settings, slots, guard, _BLOCKING_CONNECTIONS, blocking_s, tries=4, copied=False)
        self._once = NodePools(settings, slots, guard, _PROMPT_CONNECTIONS, REPLY_TIMEOUT_S, tries=1, copied=True)
        self._vital = NodePools(settings, slots, guard, _VITAL_CONNECTIONS, REPLY_TIMEOUT_S, tries=4, copied=False)
        self._unguarded = NodePools(settings, slots, None, _IDENTITY_CONNECTIONS, REPLY_TIMEOUT_S, tries=4, copied=True)

    async def call(self, *command: Value) -> Any:
        """Run one command. Raises :class:`StoreUnavailable`."""
        with _translated():
            return await self._prompt.call(command)

    async def call_blocking(self, *command: Value) -> Any:
        """Run one command that blocks, for at most ``MAX_BLOCK_S``. Raises :class:`StoreUnavailable`."""
        with _translated():
            return await self._blocking.call(command)

    async def run_urgent_script(self, name: str, keys: Sequence[str], *arguments: Value) -> Any:
        """Run one script that must not wait until others are done, as a heartbeat. Raises :class:`StoreUnavailable`."""
        with _translated():
            return await self._vital.call(script_command(name, keys, *arguments))

    async def call_unguarded(self, *command: Value) -> Any:
        """Run one command about the store's identity, of a store that is refused as well.

        Raises :class:`StoreUnavailable`.
        """
        with _translated():
            return await self._unguarded.call(command)

    async def run_script(self, name: str, keys: Sequence[str], *arguments: Value) -> Any:
        """Run one script. Raises :class:`StoreUnavailable`."""
        return await self.call(*script_command(name, keys, *arguments))

    async def call_many(self, commands: Sequence[Command]) -> list[Any]:
        """Run independent commands, hundreds in one round trip, in order in each slot.

        Raises :class:`StoreUnavailable`.
        """
        return await _stretched(self._prompt, commands)

    async def call_each(self, commands: Sequence[Command]) -> list[Any]:
        """Do the same, where one command's error, our own :class:`StoreUnavailable` or a bug's, is its reply alone."""
        replies: list[Any] = []
        with _translated():
            for some in _stretches(commands):
                replies += await self._prompt.call_each(some)
        return [
            _ours(command, reply) if isinstance(reply, Exception) else reply
            for command, reply in zip(commands, replies, strict=True)
        ]

    async def call_many_once(self, commands: Sequence[Command]) -> list[Any]:
        """Do the same with commands that must not be repeated.

        Raises :class:`StoreUnavailable`; whether they were carried out is then unknown.
        """
        return await _stretched(self._once, commands)

    def node_of(self, command: Command) -> Address | None:
        """Return which node of a cluster a command goes to; None if there is one Redis, or nobody knows yet."""
        return self._prompt.node_of(command)

    async def close(self) -> None:
        """Close every connection, all at once: whoever is cancelled meanwhile has closed them all the same."""
        lanes = (self._prompt, self._blocking, self._once, self._vital, self._unguarded)
        await asyncio.gather(*(lane.close() for lane in lanes))


async def _stretched(lane: NodePools, commands: Sequence[Command]) -> list[Any]:
    replies: list[Any] = []
    with _translated():
        for some in _stretches(commands):
            replies += raise_errors(some, await lane.call_each(some))
    return replies


def _stretches(commands: Sequence[Command]) -> Iterator[Sequence[Command]]:
    return (commands[start : start + _PER_ROUND_TRIP] for start in range(0, len(commands), _PER_ROUND_TRIP))


def _ours(command: Command, error: Exception) -> Exception:
    """Return an error as it would be raised."""
    try:
        with _translated():
            raise_errors([command], [error])
    except Exception as raised:  # noqa: BLE001 - whatever it is, it is for who asked
        return raised
    return error


_Asked = tuple[Sequence[Command], asyncio.Future[list[Any]]]


class RedisRepository:
    """Base of the parts of the store that need nothing but a link to Redis."""

    def __init__(self, link: RedisClient) -> None:
        """Use this link to Redis."""
        self._link = link


class BatchingClient:
    """Gathers commands until the loop's next turn; each may be repeated, as those of :meth:`RedisClient.many`.

    What goes wrong with one asker's commands is that asker's alone.
    """

    def __init__(self, link: RedisClient) -> None:
        """Use this link to Redis."""
        self._link = link
        self._gathered: list[_Asked] = []
        self._sending: set[asyncio.Task[None]] = set()

    async def call_many(self, commands: Sequence[Command]) -> list[Any]:
        """Run independent commands, in order. Raises :class:`StoreUnavailable`."""
        loop = asyncio.get_running_loop()
        if not self._gathered:
            loop.call_soon(self._send)
        replies: asyncio.Future[list[Any]] = loop.create_future()
        self._gathered.append((commands, replies))
        return await replies

    async def call(self, *command: Value) -> Any:
        """Run one command. Raises :class:`StoreUnavailable`."""
        return (await self.call_many([command]))[0]

    async def run_script(self, name: str, keys: Sequence[str], *arguments: Value) -> Any:
        """Run one script. Raises :class:`StoreUnavailable`."""
        return await self.call(*script_command(name, keys, *arguments))

    def _send(self) -> None:
        by_nodes: dict[frozenset[Address | None], list[_Asked]] = {}
        for asked in self._gathered:
            nodes = frozenset(self._link.node_of(command) for command in asked[0])
            by_nodes.setdefault(nodes, []).append(asked)
        self._gathered = []
        for gathered in by_nodes.values():
            sending = asyncio.create_task(self._answered(gathered))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    async def _answered(self, gathered: Sequence[_Asked]) -> None:
        try:
            found = iter(await self._link.call_each([command for commands, _ in gathered for command in commands]))
        except Exception as error:  # noqa: BLE001 - a bug, too, is for those who ask, or they would wait for ever
            for _, replies in gathered:
                if not replies.done():
                    replies.set_exception(type(error)(str(error)) if isinstance(error, StoreUnavailable) else error)
            return
        for commands, replies in gathered:
            own = [next(found) for _ in commands]
            wrong = next((reply for reply in own if isinstance(reply, Exception)), None)
            if replies.done():  # its asker was cancelled meanwhile
                continue
            if wrong is not None:
                replies.set_exception(wrong)
            else:
                replies.set_result(own)


class BatchedRepository:
    """Base of the parts of the store whose commands are sent together with others."""

    def __init__(self, link: BatchingClient) -> None:
        """Use this link to Redis."""
        self._link = link
