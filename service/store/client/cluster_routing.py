"""Connections to the Redis nodes, and the choice of the node to which each command is sent.

Redis may be a single server or a cluster. The client detects this without a setting: the first MOVED error shows that
Redis is a cluster. The client then fetches the *slot map*, which states which node serves each range of hash slots.

In a cluster, a write is acknowledged only after a replica has received it (``WAIT``), so that a failover loses no
acknowledged write (docs/decisions/0020). If a node has no replica, a write is acknowledged at once.
"""

import asyncio
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.connection import Connection, UnixDomainSocketConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.crc import key_slot

from service.errors import StoreUnavailable
from service.settings import Settings
from service.store.client.data_loss_guard import DataLossGuard
from service.store.client.node_connections import (
    NO_REPLY,
    Command,
    QuickPool,
    Value,
    close_pool,
    connection_class,
    run_commands,
)

Address = tuple[str, int]
"""Host and port."""

READ_ONLY_MARKER = "-- read-only"
"""First line of a script that writes nothing."""

_NO_KEY = frozenset({"PING", "INFO", "TIME", "CONFIG", "KEYS", "SCAN", "FLUSHALL", "CLUSTER", "SCRIPT", "DBSIZE"})
_READS = frozenset(
    {"EXISTS", "GET", "HEXISTS", "HGET", "HGETALL", "HLEN", "HMGET", "HSCAN", "LLEN", "LRANGE", "MEMORY", "PTTL"}
    | {"SCARD", "SISMEMBER", "SMEMBERS", "STRLEN", "TTL", "XLEN", "XRANGE", "XREAD", "XREVRANGE"}
    | {"ZCARD", "ZLEXCOUNT", "ZMSCORE", "ZRANGE", "ZRANGEBYLEX", "ZSCORE"}
)


def slot_of(command: Command) -> int | None:
    """Return the cluster slot of a command's keys; None if it has no keys, so that any node can run it."""
    name = str(command[0])
    if name in _NO_KEY:
        return None
    if name in ("EVAL", "EVALSHA"):
        key: Value | None = command[3] if command[2] else None
    elif name == "XREAD":
        key = command[command.index("STREAMS") + 1]
    else:
        key = command[1]
    return None if key is None else key_slot(key if isinstance(key, bytes) else str(key).encode())


def is_write(command: Command) -> bool:
    """Return whether a command may change data."""
    name = str(command[0])
    return name not in _READS | _NO_KEY and not (name == "EVAL" and str(command[1]).startswith(READ_ONLY_MARKER))


class SlotMap:
    """Maps each range of slots to the cluster node that serves it. It is empty unless Redis is known to be a cluster.

    The map may be outdated. In this case, a node that no longer serves a slot replies with a MOVED error.
    """

    # All pools of a client share one map.

    def __init__(self) -> None:
        self._starts: list[int] = []
        """First slot of each range, ascending."""
        self.masters: list[Address] = []
        """Master of each range, in the same order."""
        self.replicated: set[Address] = set()
        """Masters that have a connected replica."""
        self._updated_s = 0.0

    def update(self, reply: Sequence[Sequence[Any]], source: Address | None) -> None:
        """Replace the map with the contents of ``reply``, a reply to ``CLUSTER SLOTS`` from the node at ``source``."""
        ranges = sorted((int(first), _address(master, source), bool(replicas)) for first, _, master, *replicas in reply)
        self._starts = [first for first, _, _ in ranges]
        self.masters = [master for _, master, _ in ranges]
        self.replicated = {master for _, master, has_replica in ranges if has_replica}
        self._updated_s = time.monotonic()

    def __bool__(self) -> bool:
        """Return whether Redis is known to be a cluster."""
        return bool(self.masters)

    def master(self, slot: int) -> Address | None:
        """Return the address of the master node of a slot; None if it is unknown."""
        index = bisect_right(self._starts, slot) - 1
        return self.masters[index] if index >= 0 else None

    @property
    def is_fresh(self) -> bool:
        """Whether the map was fetched within the last ``_RETRY_DELAY_S`` seconds.

        In this case, it is fetched again only if a node has replied with a MOVED error.
        """
        return time.monotonic() - self._updated_s < _RETRY_DELAY_S

    @property
    def is_outdated(self) -> bool:
        """Whether the map is so old that it should be fetched again, to notice new replicas and failovers."""
        return bool(self) and time.monotonic() - self._updated_s > _SLOT_MAP_MAX_AGE_S


def _address(node: Sequence[Any], source: Address | None) -> Address:
    host = node[0].decode() if node[0] else ""
    # A node that does not know its own host name omits it in its replies.
    return (host if host not in ("", "?") or source is None else source[0]), int(node[1])


REPLY_TIMEOUT_S = 5.0


def address_of(url: str) -> Address | None:
    """Return the host and port of a Redis URL; None for a Unix socket."""
    options = parse_url(url)
    return None if "path" in options else (options.get("host", "localhost"), options.get("port", 6379))


_REPLICATION_TIMEOUT_MS = 500
_SLOT_MAP_MAX_AGE_S = 10.0
_RETRY_DELAY_S = 0.05

# Errors of commands that were not run, but may be run later.
_LATER = (exceptions.TryAgainError, exceptions.ClusterDownError, exceptions.ReadOnlyError)


class NodePools:
    """Connection pools for one kind of command, one pool for each Redis node.

    - ``guard``: rejects all commands if the store has lost data or belongs to another fleet. None means that this is
      not checked.
    - ``connections``: maximum number of connections in each pool.
    - ``timeout_s``: maximum number of seconds to wait for a reply, or for a free connection.
    - ``tries``: how many times a command may be sent if the connection breaks before the reply arrives. If this is 1,
      the command is not sent again, because it may already have run. In a cluster, every number above 1 means the
      same: commands are sent again for up to ``REPLY_TIMEOUT_S`` seconds.
    - ``replicated``: whether a write in a cluster waits until a replica has received it.
    """

    def __init__(
        self,
        settings: Settings,
        slots: SlotMap,
        guard: DataLossGuard | None,
        connections: int,
        timeout_s: float,
        *,
        tries: int,
        replicated: bool,
    ) -> None:
        self._settings, self._slots, self._guard = settings, slots, guard
        self._connections, self._timeout_s = connections, timeout_s
        self._tries, self._replicated = tries, replicated
        self._seeds = [url.strip() for url in settings.redis_url.split(",") if url.strip()]
        """The configured URLs: a single one, or those of several nodes of one cluster."""
        self._pools: dict[Address | None, Redis] = {}
        self._closed = False

    async def call_each(self, commands: Sequence[Command]) -> list[Any]:
        """Run independent commands with one round trip per node; return their replies, in order.

        The reply of a failed command is its exception. In a cluster, redirections are followed, and failed commands are
        retried for up to ``REPLY_TIMEOUT_S`` seconds. Raises :class:`StoreUnavailable` if no replica has received a
        write.
        """
        replies: list[Any] = [None] * len(commands)
        pending = list(range(len(commands)))
        retry_until_s: float | None = None
        while True:
            self._check_usable()
            await self._send([(index, commands[index]) for index in pending], replies)
            failed = [index for index in pending if isinstance(replies[index], Exception)]
            pending = [index for index in failed if self._is_retryable(replies[index])]
            if not pending or (retry_until_s is not None and time.monotonic() >= retry_until_s):
                return replies
            if retry_until_s is None:
                retry_until_s = time.monotonic() + REPLY_TIMEOUT_S
            else:
                await asyncio.sleep(_RETRY_DELAY_S)
            await self._refresh_after_errors({index: replies[index] for index in pending}, commands)
            if not self._slots:
                return replies

    def _check_usable(self) -> None:
        """Check that commands can be sent.

        - Raises the driver's ``ConnectionError`` if the pools are closed.
        - Raises :class:`StoreIdentityMismatch` if the guard does not let this process use the store.
        """
        if self._closed:
            raise exceptions.ConnectionError("The store is closed.")
        if self._guard is not None:
            self._guard.check()

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        await asyncio.gather(*map(close_pool, self._pools.values()))

    async def _refresh_after_errors(self, failed: Mapping[int, Exception], commands: Sequence[Command]) -> None:
        """Fetch the slot map again if the errors in ``failed`` suggest that it is outdated.

        ``failed`` maps the index of each failed command in ``commands`` to the command's error.
        """
        # The map is requested first from the nodes named in redirections, and last from nodes that did not reply.
        moved = [error.node_addr for error in failed.values() if isinstance(error, exceptions.MovedError)]
        if not moved and (
            self._slots.is_fresh or all(isinstance(error, exceptions.AskError) for error in failed.values())
        ):
            return
        silent = {self.node_of(commands[index]) for index, error in failed.items() if isinstance(error, NO_REPLY)}
        await self._fetch_slot_map(sorted([*dict.fromkeys([*moved, *self._known_nodes()])], key=silent.__contains__))

    def _is_retryable(self, error: Exception) -> bool:
        if isinstance(error, exceptions.AskError):  # or its subclass MovedError
            return True
        has_other_nodes = bool(self._slots) or len(self._seeds) > 1
        return has_other_nodes and (isinstance(error, _LATER) or (self._tries > 1 and isinstance(error, NO_REPLY)))

    async def _send(self, indexed: Sequence[tuple[int, Command]], replies: list[Any]) -> None:
        """Send commands to their nodes, in parallel if there are several nodes.

        ``indexed`` contains pairs (index, command). Each command's reply or error is stored in ``replies`` at the
        command's index.
        """
        if not self._slots:
            await self._send_to_node(None, indexed, replies)
            return
        by_node: dict[Address | None, list[tuple[int, Command]]] = {}
        for index, command in indexed:
            before = replies[index]
            if isinstance(before, exceptions.AskError) and not isinstance(before, exceptions.MovedError):
                by_node.setdefault(before.node_addr, []).append((-1, ("ASKING",)))
                by_node[before.node_addr].append((index, command))
            else:
                by_node.setdefault(self.node_of(command), []).append((index, command))
        await asyncio.gather(*(self._send_to_node(node, some, replies) for node, some in by_node.items()))

    async def _send_to_node(
        self, node: Address | None, indexed: Sequence[tuple[int, Command]], replies: list[Any]
    ) -> None:
        slots = self._slots
        commands = [command for _, command in indexed]
        replicate = self._replicated and node in slots.replicated and any(map(is_write, commands))
        extra: list[Command] = [("WAIT", 1, _REPLICATION_TIMEOUT_MS)] if replicate else []
        extra += [("CLUSTER", "SLOTS")] if slots.is_outdated else []
        try:
            received = await run_commands(self._pool(node), [*commands, *extra])
        except NO_REPLY as error:
            received = [error] * len(indexed)
        for (index, _), reply in zip(indexed, received, strict=False):
            if index >= 0:
                replies[index] = reply
        extra_replies = received[len(indexed) :]
        if slots.is_outdated and extra_replies and isinstance(extra_replies[-1], list):
            slots.update(extra_replies[-1], node)
        if replicate and extra_replies and extra_replies[0] == 0:
            await self._fetch_slot_map(self._known_nodes())
            raise StoreUnavailable("Redis wrote it, but no replica has it yet. Is one of the cluster's nodes down?")

    def node_of(self, command: Command) -> Address | None:
        """Return the address of the master node to which ``command`` is sent.

        A command without keys is sent to the first known master. The result is None if Redis is not known to be a
        cluster, or if the slot map does not contain the command's slot.
        """
        slot = slot_of(command) if self._slots else None
        return self._slots.master(slot) if slot is not None else next(iter(self._slots.masters), None)

    async def call_on_node(self, node: Address, commands: Sequence[Command]) -> list[Any]:
        """Run commands that have no keys on the node ``node``, without retries; return their replies, in order.

        The reply of a failed command is its exception.
        """
        self._check_usable()
        return await run_commands(self._pool(node), commands)

    async def _fetch_slot_map(self, nodes: Iterable[Address | None]) -> None:
        """Replace the slot map with that of the first node in ``nodes`` that replies."""
        for node in nodes:
            try:
                (reply,) = await run_commands(self._pool(node), [("CLUSTER", "SLOTS")])
            except NO_REPLY:
                continue
            if isinstance(reply, list) and reply:
                self._slots.update(reply, node or address_of(self._seeds[0]))
                return

    def _known_nodes(self) -> list[Address | None]:
        """Return the addresses of the masters in the slot map and of the configured nodes.

        The first configured node is represented by None.
        """
        return [*dict.fromkeys(self._slots.masters), None, *map(address_of, self._seeds[1:])]

    def _pool(self, node: Address | None) -> Redis:
        """Return the connection pool of a node, creating it if there is none yet.

        None as ``node`` stands for the first configured node. All pools use the options in the first configured URL.
        """
        if node not in self._pools:
            self._check_usable()  # no pool is opened after the others were closed
            self._pools[node] = self._open(node)
        return self._pools[node]

    def _open(self, node: Address | None) -> Redis:
        settings, guard = self._settings, self._guard
        options: dict[str, Any] = dict(parse_url(self._seeds[0]))
        kind = options.pop("connection_class", Connection)
        if node is not None:
            if kind is UnixDomainSocketConnection:
                kind = Connection
            options.pop("path", None)
            options |= {"host": node[0], "port": node[1], "db": 0}
        common: dict[str, Any] = {
            "username": settings.redis_username or None,
            "password": settings.redis_password.get_secret_value() or None,
        }
        tries = self._tries if node is None and len(self._seeds) == 1 else 1
        pool = QuickPool(
            max_connections=self._connections,
            timeout=self._timeout_s,
            connection_class=connection_class(kind),
            socket_timeout=self._timeout_s,
            socket_connect_timeout=REPLY_TIMEOUT_S,
            redis_connect_func=None if guard is None else guard.check_connection,
            # A broken pooled connection is noticed only when it is used: the second try opens a new one.
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), tries - 1),
            **(common | options),
        )
        return Redis.from_pool(pool)
