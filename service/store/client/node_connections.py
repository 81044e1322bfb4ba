"""Connections to one Redis node, and the exchange of commands and replies over them.

The driver, redis-py, opens, authenticates and closes connections. This module sends commands and reads replies itself,
because the driver's clients and pipelines are slow. A batch of commands is sent in a single write. Replies that have
already arrived are read without awaiting anything.
"""

# For each batch the driver starts a task and two timers and takes three locks, and for each reply it awaits four
# coroutines.

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import sha1
from typing import Any

import hiredis
from redis import exceptions
from redis._parsers.hiredis import NOT_ENOUGH_DATA
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as NoConnection

Value = str | bytes | int | float
Command = tuple[Value, ...]

NO_REPLY = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)
"""Errors after which it is unknown whether Redis has run the command."""

_MAX_SCRIPTS = 500


async def close_pool(pool: Redis) -> None:
    """Close all connections in a pool. A connection that is still being opened is closed as soon as it is open."""
    pool.connection_pool.connection_class.is_closed = True  # type: ignore[attr-defined]  # see connection_class
    await pool.aclose()


class DirectConnection(AbstractConnection):
    """A connection that differs from the Redis driver's own connections in three ways.

    - It exchanges commands and replies without the driver (:meth:`exchange`).
    - It sends the text of a script once, and afterwards only the script's digest. If Redis does not know the digest,
      the text is sent again (:func:`run_commands`).
    - If its pool was closed while the connection was being opened, the connection closes immediately (``is_closed``).
    """

    is_closed = False
    _parser: Any
    _writer: Any

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.sent_scripts = _SentScripts()

    async def _connect(self) -> None:
        self.sent_scripts.clear()
        await super()._connect()  # type: ignore[safe-super,no-untyped-call]  # of the class with which this one is combined
        if self.is_closed:
            await self.disconnect(nowait=True)
            raise NoConnection("The store is closed.")

    async def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands and return Redis's replies in order, without converting them.

        The reply of a failed command is its error. Raises one of the errors in ``NO_REPLY`` if the connection breaks.
        If the method raises an error or is cancelled, it closes the connection.
        """
        if not self.is_connected:
            await self.connect_check_health(check_health=False)
        try:
            await self._send(b"".join([self._pack(command) for command in commands]))
            return await self._read_replies(len(commands))
        except BaseException:
            await self.disconnect(nowait=True)  # a reply may still arrive that nobody reads
            raise

    async def send_packed_command(self, command: Any, check_health: bool = True) -> None:  # noqa: ARG002, FBT001, FBT002 - redis-py's own signature
        """Send a command that the driver itself issues, such as the first commands on a new connection.

        ``command`` contains the parts of the encoded command. ``check_health`` is ignored; it exists because the driver
        passes it.
        """
        if not self.is_connected:
            await self.connect_check_health(check_health=False)
        try:
            await self._send(b"".join(command))
        except BaseException:
            await self.disconnect(nowait=True)
            raise

    def _pack(self, command: Command) -> bytes:
        if command[0] == "EVAL":
            command = self.sent_scripts.shorten(command)
        packed: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # the stub allows only one argument
        return packed

    async def _send(self, packed: bytes) -> None:
        """Send bytes, waiting if the socket cannot accept all of them immediately.

        Raises the driver's ``TimeoutError`` or ``NoConnection`` if the bytes cannot be sent.
        """
        # The driver's own method is not used, for two reasons. It starts a task for each call. Before Python 3.12, it
        # may also lose a cancellation, so that the cancelled caller continues to wait for a reply.
        try:
            self._writer.write(packed)
            if self._writer.transport.get_write_buffer_size():
                async with asyncio.timeout(self.socket_timeout):
                    await self._writer.drain()
        except TimeoutError as error:
            raise exceptions.TimeoutError("Redis does not read what is sent to it.") from error
        except OSError as error:
            raise NoConnection(f"The connection broke while a command was sent: {error}.") from error

    async def _read_replies(self, count: int) -> list[Any]:
        next_reply, replies = self._parser._reader.gets, list[Any]()  # noqa: SLF001 - the driver has no public access to what has arrived
        for _ in range(count):
            reply = next_reply()
            if reply is NOT_ENOUGH_DATA or isinstance(reply, hiredis.PushNotification):  # nobody asks for pushes
                try:
                    reply = await self.read_response()
                except exceptions.ResponseError as error:
                    reply = error
            elif isinstance(reply, NoConnection):
                raise reply
            replies.append(reply)
        return replies


def connection_class(kind: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return a new connection class for one pool. It extends ``kind`` with :class:`DirectConnection`.

    ``kind`` is one of the driver's connection classes, for example the one for TCP. Each pool needs its own class,
    because the class records whether the pool is closed.
    """
    return type("DirectConnection", (DirectConnection, kind), {})


class QuickPool(BlockingConnectionPool):
    """A connection pool that hands out a free connection immediately, unless other commands are waiting for one.

    The driver's pool is slower, because it uses a timer and locks for each command and checks the connection twice.
    """

    _waiting = 0

    async def get_connection(self, *arguments: Any, **options: Any) -> Any:
        """Return an open connection; if none is free, wait for one.

        ``arguments`` and ``options`` are passed to the driver's own method, which does the waiting.
        """
        driver: Any = super()
        if self._waiting or not self.can_get_connection():
            self._waiting += 1
            try:
                return await driver.get_connection(*arguments, **options)
            finally:
                self._waiting -= 1
        connection = driver.get_available_connection()
        try:
            is_usable = False
            with suppress(*NO_REPLY):
                is_usable = connection.is_connected and not await connection.can_read()  # or Redis has closed it
            if not is_usable:
                await self.ensure_connection(connection)
        except BaseException:
            await self.release(connection)
            raise
        return connection

    async def release(self, connection: Any) -> None:
        """Return a connection to the pool. This is completed even if the caller is cancelled."""
        if self._waiting or connection.should_reconnect():
            await asyncio.shield(super().release(connection))
        else:
            self._in_use_connections.remove(connection)
            self._available_connections.append(connection)


class _SentScripts:
    """The scripts that were sent over one connection. Redis remembers them until its script cache is flushed."""

    flushes = 0
    """How many times this process has noticed that Redis's script cache was flushed.

    When this number grows, all connections send scripts in full again.
    """

    def __init__(self) -> None:
        self._digests = set[str]()
        self._flushes = self.flushes

    def clear(self) -> None:
        """Forget all scripts, because the connection is being reopened."""
        self._digests.clear()

    def shorten(self, command: Command) -> Command:
        """Return the command to send instead of ``command``, which has the form ``EVAL script …``.

        If the script was sent before, this is ``EVALSHA digest …``. Otherwise, it is ``command`` itself, and the script
        is recorded as sent.
        """
        if self._flushes != _SentScripts.flushes:
            self._flushes = _SentScripts.flushes
            self._digests.clear()
        digest = _script_digest(str(command[1]))
        if digest in self._digests:
            return ("EVALSHA", digest, *command[2:])
        self._digests.add(digest)
        return command


@lru_cache(_MAX_SCRIPTS)
def _script_digest(script: str) -> str:
    return sha1(script.encode(), usedforsecurity=False).hexdigest()


async def run_commands(client: Redis, commands: Sequence[Command]) -> list[Any]:
    """Run commands, normally in one round trip, and return their replies in order.

    The reply of a failed command is its exception. The commands run in the given order, except in one case: if Redis
    does not know the digest of a script, the script's text is sent in a second round trip and runs after all other
    commands.
    """
    replies = await _exchange(client, commands)
    missing = [index for index, reply in enumerate(replies) if isinstance(reply, exceptions.NoScriptError)]
    if missing:
        _SentScripts.flushes += 1
        again = await _exchange(client, [commands[index] for index in missing])
        for index, reply in zip(missing, again, strict=True):
            replies[index] = reply
    return replies


async def _exchange(client: Redis, commands: Sequence[Command]) -> list[Any]:
    """Send commands and return their replies in order, converted to the driver's types.

    If the connection breaks, the commands are sent again, up to as many times as the pool's retry policy allows.
    """
    pool: Any = client.connection_pool
    connection = await pool.get_connection()
    try:
        replies: list[Any] = await connection.retry.call_with_retry(
            lambda: connection.exchange(commands), lambda _: connection.disconnect(nowait=True)
        )
    finally:
        await pool.release(connection)
    converters: Any = client.response_callbacks
    if converters.keys().isdisjoint([command[0] for command in commands]):
        return replies
    for index, command in enumerate(commands):
        convert = dict.get(converters, command[0])  # the driver's own look-up ignores case, in Python
        if convert is not None and not isinstance(replies[index], exceptions.RedisError):
            replies[index] = convert(replies[index])
    return replies
