"""Pools of connections to one node of Redis."""

import asyncio
from collections.abc import Iterable
from typing import Any

import hiredis
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection, Connection, UnixDomainSocketConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError as NoConnection

from service.settings import Settings
from service.store.identity import IdentityGuard
from service.store.slots import Address, Value

ANSWER_WITHIN_S = 5.0


def seeds(settings: Settings) -> list[str]:
    """Return the URLs of ``redis_url``: one, or several nodes of one cluster."""
    return [url.strip() for url in settings.redis_url.split(",") if url.strip()]


def address_of(url: str) -> Address | None:
    """Return the host and port of a URL; None for a Unix socket."""
    options = parse_url(url)
    return None if "path" in options else (options.get("host", "localhost"), options.get("port", 6379))


def open_pool(
    settings: Settings,
    url: str,
    address: Address | None,
    *,
    connections: int,
    timeout_s: float,
    tries: int,
    guard: IdentityGuard | None,
) -> Redis:
    """Return a client of the node at ``address``, which is reached as ``url`` says; without one, of the URL's own.

    The ``guard`` checks each connection before it is used.
    """
    options: dict[str, Any] = dict(parse_url(url))
    kind = options.pop("connection_class", Connection)
    if address is not None:
        if kind is UnixDomainSocketConnection:
            kind = Connection
        options.pop("path", None)
        options |= {"host": address[0], "port": address[1], "db": 0}
    common: dict[str, Any] = {
        "username": settings.redis_username or None,
        "password": settings.redis_password.get_secret_value() or None,
    }
    pool = BlockingConnectionPool(
        max_connections=connections,
        timeout=timeout_s,
        connection_class=_ours(kind),
        socket_timeout=timeout_s,
        socket_connect_timeout=ANSWER_WITHIN_S,
        redis_connect_func=None if guard is None else guard.check_connection,
        # A pooled connection is found dead only when used: after a restart of Redis the second try is on a new one.
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), tries - 1),
        **(common | options),
    )
    return Redis.from_pool(pool)


async def close_pool(pool: Redis) -> None:
    """Close a pool's connections, and let none be opened for what was under way: nobody would close that one."""
    pool.connection_pool.connection_class.is_over = True  # type: ignore[attr-defined]  # it is Ours
    await pool.aclose()


def _ours(kind: type[AbstractConnection]) -> type[AbstractConnection]:
    """Return a connection that packs commands in C, as redis-py does unless it is asynchronous: four times as fast.

    None is opened any more once their pool ``is_over``. And who is cancelled while they send is cancelled, which
    redis-py may forget: it sends within ``asyncio.wait_for``, which before Python 3.12 drops a cancellation that comes
    as its inner task ends. Then they would wait for an answer first, for seconds if their command blocks.
    """

    class Ours(kind):  # type: ignore[valid-type,misc]  # which kind it is, the URL says
        is_over = False

        async def _connect(self) -> None:
            self._check_not_over()
            await super()._connect()
            if self.is_over:
                await self.disconnect(nowait=True)
            self._check_not_over()

        def _check_not_over(self) -> None:
            if self.is_over:
                raise NoConnection("The store is closed.")

        def pack_command(self, *args: Value) -> list[bytes]:
            return [hiredis.pack_command(args)]  # type: ignore[arg-type]  # its stub says a tuple of one

        async def send_packed_command(self, command: Iterable[bytes], check_health: bool = True) -> None:  # noqa: FBT001, FBT002 - redis-py's own signature
            before = _cancellations()
            await super().send_packed_command(command, check_health)
            if _cancellations() > before:
                await self.disconnect(nowait=True)  # an answer may come for which nobody waits
                raise asyncio.CancelledError

    return Ours


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
