"""The one way to Redis: commands, pipelines and scripts, with drivers' errors translated.

Scripts are sent whole with EVAL: Redis caches them by their digest anyway, and so neither SCRIPT
FLUSH nor a new master in a cluster can leave us with a script it does not know.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

import hiredis
from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff

from service.errors import StoreUnavailable
from service.settings import Settings

Value = str | bytes | int | float
Command = tuple[Value, ...]

_PER_ROUND_TRIP = 500
"""Commands written at once: more would cost memory that a process keeps for good, and hold up others."""

BLOCK_AT_MOST_S = 5.0
_ANSWER_WITHIN_S = 5.0

# Of each pool. Who comes when all are busy waits; more of them would not make Redis faster, and cost descriptors.
_PROMPT_CONNECTIONS = 32
_BLOCKING_CONNECTIONS = 100
_VITAL_CONNECTIONS = 4

# Replies that say "not now" although they come as plain errors; scripts and pipelines wrap them in words of their own.
_OPERATIONAL = re.compile(r"\b(MISCONF|NOREPLICAS|LOADING|MASTERDOWN|READONLY|OOM|CLUSTERDOWN|TRYAGAIN|BUSY|NOPERM)\b")

# The driver takes their code words away.
_REFUSALS = (exceptions.ReadOnlyError, exceptions.OutOfMemoryError, exceptions.NoPermissionError)


@cache
def _script(name: str) -> str:
    """Return a script without its comments, which need not travel with every command."""
    lines = files("service.store").joinpath("scripts", f"{name}.lua").read_text(encoding="utf-8").splitlines()
    return "\n".join(line.strip() for line in lines if not line.lstrip().startswith("--"))


def script(name: str, keys: Sequence[str], *arguments: Value) -> Command:
    """Return the command that runs ``scripts/NAME.lua``; all keys must be of one slot."""
    return ("EVAL", _script(name), len(keys), *keys, *arguments)


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


class Link:
    """Pools of connections to one Redis: for commands that answer at once, block, are sent only once, or are vital.

    What may be repeated is sent again when its connection breaks before the answer.
    """

    def __init__(self, settings: Settings) -> None:
        """Open nothing yet; connections are made on demand and kept."""
        self._prompt = _client(settings, _PROMPT_CONNECTIONS, _ANSWER_WITHIN_S, tries=4)
        self._blocking = _client(settings, _BLOCKING_CONNECTIONS, BLOCK_AT_MOST_S + _ANSWER_WITHIN_S, tries=4)
        self._once = _client(settings, _PROMPT_CONNECTIONS, _ANSWER_WITHIN_S, tries=1)
        self._vital = _client(settings, _VITAL_CONNECTIONS, _ANSWER_WITHIN_S, tries=4)

    async def call(self, *command: Value) -> Any:
        """Run one command. Raises :class:`StoreUnavailable`."""
        with _translated():
            return await self._prompt.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py leaves it untyped

    async def wait(self, *command: Value) -> Any:
        """Run one command that blocks, for at most ``BLOCK_AT_MOST_S``. Raises :class:`StoreUnavailable`."""
        with _translated():
            return await self._blocking.execute_command(*command)  # type: ignore[no-untyped-call]  # same

    async def vital(self, name: str, keys: Sequence[str], *arguments: Value) -> Any:
        """Run one script that must not wait until others are done, as a heartbeat. Raises :class:`StoreUnavailable`."""
        with _translated():
            return await self._vital.execute_command(*script(name, keys, *arguments))  # type: ignore[no-untyped-call]  # same

    async def script(self, name: str, keys: Sequence[str], *arguments: Value) -> Any:
        """Run one script. Raises :class:`StoreUnavailable`."""
        return await self.call(*script(name, keys, *arguments))

    async def many(self, commands: Sequence[Command]) -> list[Any]:
        """Run independent commands, hundreds in one round trip, in order. Raises :class:`StoreUnavailable`."""
        return await _pipelined(self._prompt, commands)

    async def many_once(self, commands: Sequence[Command]) -> list[Any]:
        """Do the same with commands that must not be repeated.

        Raises :class:`StoreUnavailable`; whether they were carried out is then unknown.
        """
        return await _pipelined(self._once, commands)

    async def close(self) -> None:
        """Close every connection."""
        await self._prompt.aclose()
        await self._blocking.aclose()
        await self._once.aclose()
        await self._vital.aclose()


async def _pipelined(client: Redis, commands: Sequence[Command]) -> list[Any]:
    replies: list[Any] = []
    with _translated():
        for start in range(0, len(commands), _PER_ROUND_TRIP):
            async with client.pipeline(transaction=False) as pipeline:
                for command in commands[start : start + _PER_ROUND_TRIP]:
                    pipeline.execute_command(*command)
                replies += await pipeline.execute()
    return replies


def _client(settings: Settings, connections: int, timeout_s: float, *, tries: int) -> Redis:
    pool = BlockingConnectionPool.from_url(
        settings.redis_url,
        max_connections=connections,
        timeout=timeout_s,
        username=settings.redis_username or None,
        password=settings.redis_password.get_secret_value() or None,
        socket_timeout=timeout_s,
        socket_connect_timeout=_ANSWER_WITHIN_S,
        # A pooled connection is found dead only when used: after a restart of Redis the second try is on a new one.
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), tries - 1),
    )
    pool.connection_class = _packing(pool.connection_class)
    return Redis.from_pool(pool)


def _packing(kind: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return a connection that packs commands in C, as redis-py does unless it is asynchronous: four times as fast."""

    class Packing(kind):  # type: ignore[valid-type,misc]  # which kind it is, the URL says
        def pack_command(self, *args: Value) -> list[bytes]:
            return [hiredis.pack_command(args)]  # type: ignore[arg-type]  # its stub says a tuple of one

    return Packing
