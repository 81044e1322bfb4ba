"""Sending commands to a Redis, or to the nodes of a Redis Cluster that have their keys.

What Redis is, nobody has to say: only a node of a cluster answers MOVED, and one such answer, to whatever command,
makes us ask for the map of slots. A single Redis is never asked for one.

In a cluster a write is acknowledged when a replica has it as well (``WAIT``), as long as its master has one: a
failover then loses nothing that was acknowledged (docs/decisions/0020).
"""

import asyncio
import time
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import hiredis
import msgspec
from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.connection import AbstractConnection, Connection, UnixDomainSocketConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.crc import key_slot
from redis.exceptions import ConnectionError as NoConnection

from service.errors import StoreUnavailable
from service.settings import Settings
from service.store.client.identity import IdentityGuard

Value = str | bytes | int | float
Command = tuple[Value, ...]
Address = tuple[str, int]
"""Host and port."""

READ_ONLY_MARKER = "-- reads only"
"""What the first line of a script says that writes nothing."""

_NO_KEY = frozenset({"PING", "INFO", "TIME", "CONFIG", "KEYS", "SCAN", "FLUSHALL", "CLUSTER", "SCRIPT", "DBSIZE"})
_READS = frozenset(
    {"EXISTS", "GET", "HEXISTS", "HGET", "HGETALL", "HLEN", "HMGET", "HSCAN", "LLEN", "LRANGE", "MEMORY", "PTTL"}
    | {"SCARD", "SISMEMBER", "SMEMBERS", "STRLEN", "TTL", "XLEN", "XRANGE", "XREAD", "XREVRANGE"}
    | {"ZCARD", "ZLEXCOUNT", "ZMSCORE", "ZRANGE", "ZRANGEBYLEX", "ZSCORE"}
)


def slot_of(command: Command) -> int | None:
    """Return the slot of a command's keys; None if any node can answer it."""
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
    """Say whether a command may change what the store holds."""
    name = str(command[0])
    return name not in _READS | _NO_KEY and not (name == "EVAL" and str(command[1]).startswith(READ_ONLY_MARKER))


class SlotMap(msgspec.Struct):
    """The masters and their slots, as one node told; it can be out of date, which others then say."""

    starts: list[int]
    """The first slots of ranges, in order."""
    masters: list[Address]
    """Of each range."""
    replicated: set[Address]
    """Masters with a replica that is up."""

    def master(self, slot: int) -> Address | None:
        """Return who has a slot, if that is known."""
        place = bisect_right(self.starts, slot) - 1
        return self.masters[place] if place >= 0 else None


def parse_slots(reply: Sequence[Sequence[Any]], asked: Address | None) -> SlotMap:
    """Read the reply to ``CLUSTER SLOTS`` of the node that was asked at this address."""
    ranges = sorted((int(first), _address(master, asked), bool(copies)) for first, _, master, *copies in reply)
    return SlotMap(
        [first for first, _, _ in ranges],
        [master for _, master, _ in ranges],
        {master for _, master, copied in ranges if copied},
    )


def _address(node: Sequence[Any], asked: Address | None) -> Address:
    host = node[0].decode() if node[0] else ""
    # A node that does not know how others reach it leaves its host out: it is the one that was asked.
    return (host if host not in ("", "?") or asked is None else asked[0]), int(node[1])


REPLY_TIMEOUT_S = 5.0


def address_of(url: str) -> Address | None:
    """Return the host and port of a URL; None for a Unix socket."""
    options = parse_url(url)
    return None if "path" in options else (options.get("host", "localhost"), options.get("port", 6379))


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


_COPIED_WITHIN_MS = 500
_MAP_KEPT_S = 10.0
_PAUSE_S = 0.05

# What was not carried out, and will be elsewhere or later.
_ELSEWHERE = (exceptions.MovedError, exceptions.AskError)
_LATER = (exceptions.TryAgainError, exceptions.ClusterDownError, exceptions.MasterDownError, exceptions.ReadOnlyError)
_NO_ANSWER = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)


class SlotMapCache:
    """What is known of the cluster: shared by all lanes of a link, None of a Redis that is none."""

    def __init__(self) -> None:
        self.map: SlotMap | None = None
        self._learnt_s = 0.0

    def update(self, reply: Sequence[Any], asked: Address | None) -> None:
        """Take the reply to ``CLUSTER SLOTS``."""
        self.map = parse_slots(reply, asked)
        self._learnt_s = time.monotonic()

    @property
    def is_fresh(self) -> bool:
        """Whether it was learnt just now: hundreds who wait for one failover need not each ask for it."""
        return time.monotonic() - self._learnt_s < _PAUSE_S

    @property
    def is_outdated(self) -> bool:
        """Whether it is time to ask again: replicas and failovers show nowhere else."""
        return time.monotonic() - self._learnt_s > _MAP_KEPT_S


class NodePools:
    """Connections for one kind of command. ``tries``: how often a single Redis is asked when a connection breaks.

    With 1, commands are not repeated that may have been carried out. ``copied``: writes wait for a replica. Nothing is
    sent to a store that the ``guard`` refuses.
    """

    def __init__(
        self,
        settings: Settings,
        slots: SlotMapCache,
        guard: IdentityGuard | None,
        connections: int,
        timeout_s: float,
        *,
        tries: int,
        copied: bool,
    ) -> None:
        self._settings, self._slots, self._guard = settings, slots, guard
        self._connections, self._timeout_s = connections, timeout_s
        self._tries, self._copied = tries, copied
        self._seeds = [url.strip() for url in settings.redis_url.split(",") if url.strip()]
        """One URL, or those of several nodes of one cluster."""
        self._pools: dict[Address | None, Redis] = {}
        self._closed = False

    async def call(self, command: Command) -> Any:
        """Run one command."""
        self._check_usable()
        if self._slots.map is None:
            try:
                return await self._at(None).execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py leaves it untyped
            except exceptions.MovedError:
                await self._look(self._seed_addresses())
            except _NO_ANSWER:
                if not await self._another_seed():
                    raise
        (reply,) = raise_errors([command], await self._in_cluster([command]))
        return reply

    async def call_each(self, commands: Sequence[Command]) -> list[Any]:
        """Run independent commands in one round trip to each node; what is answered with an error is that error."""
        self._check_usable()
        if self._slots.map is None:
            try:
                replies = await _pipelined(self._at(None), commands)
            except _NO_ANSWER:
                if not await self._another_seed():
                    raise
                return await self._in_cluster(commands)
            if not any(isinstance(reply, exceptions.MovedError) for reply in replies):
                return replies
            await self._look(self._seed_addresses())
            moved = [place for place, reply in enumerate(replies) if isinstance(reply, exceptions.MovedError)]
            again = await self._in_cluster([commands[place] for place in moved])
            for place, reply in zip(moved, again, strict=True):
                replies[place] = reply
            return replies
        return await self._in_cluster(commands)

    def _check_usable(self) -> None:
        """Open nothing for whoever comes too late: nobody would close it. Raises StoreIdentityMismatch as well."""
        if self._closed:
            raise exceptions.ConnectionError("The store is closed.")
        if self._guard is not None:
            self._guard.check()

    async def close(self) -> None:
        """Close every connection."""
        self._closed = True
        await asyncio.gather(*map(close_pool, self._pools.values()))

    async def _in_cluster(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands where their slots are, and go after them, until all are answered or patience ends."""
        replies: list[Any] = [None] * len(commands)
        waiting = list(range(len(commands)))
        patient_until: float | None = None
        while True:
            await self._ask([(place, commands[place]) for place in waiting], replies)
            waiting = [place for place in waiting if self._unanswered(replies[place])]
            if not waiting or (patient_until is not None and time.monotonic() >= patient_until):
                return replies
            if patient_until is None:
                patient_until = time.monotonic() + REPLY_TIMEOUT_S
            else:
                await asyncio.sleep(_PAUSE_S)
            await self._look_after({place: replies[place] for place in waiting}, commands)

    async def _look_after(self, failed: Mapping[int, Exception], commands: Sequence[Command]) -> None:
        """Ask for the map those who know better first, and those last who did not answer."""
        moved = [error.node_addr for error in failed.values() if isinstance(error, exceptions.MovedError)]
        silent = {self.node_of(commands[place]) for place, error in failed.items() if isinstance(error, _NO_ANSWER)}
        if all(isinstance(error, exceptions.AskError) for error in failed.values()) and not moved:
            return
        if self._slots.is_fresh and not moved:
            return
        await self._look(sorted([*dict.fromkeys([*moved, *self._known()])], key=silent.__contains__))

    def _unanswered(self, reply: Any) -> bool:
        return isinstance(reply, (*_ELSEWHERE, *_LATER)) or (self._tries > 1 and isinstance(reply, _NO_ANSWER))

    async def _ask(self, asked: Sequence[tuple[int, Command]], replies: list[Any]) -> None:
        """Send each command to its node, all nodes at once; what goes wrong is its reply."""
        by_node: dict[Address | None, list[tuple[int, Command]]] = {}
        for place, command in asked:
            before = replies[place]
            if isinstance(before, exceptions.AskError) and not isinstance(before, exceptions.MovedError):
                by_node.setdefault(before.node_addr, []).append((-1, ("ASKING",)))
                by_node[before.node_addr].append((place, command))
            else:
                by_node.setdefault(self.node_of(command), []).append((place, command))
        await asyncio.gather(*(self._ask_node(node, some, replies) for node, some in by_node.items()))

    async def _ask_node(self, node: Address | None, asked: Sequence[tuple[int, Command]], replies: list[Any]) -> None:
        slots = self._slots
        commands = [command for _, command in asked]
        copied = (
            self._copied and slots.map is not None and node in slots.map.replicated and any(map(is_write, commands))
        )
        extra: list[Command] = [("WAIT", 1, _COPIED_WITHIN_MS)] if copied else []
        extra += [("CLUSTER", "SLOTS")] if slots.is_outdated else []
        try:
            found = await _pipelined(self._at(node), [*commands, *extra])
        except _NO_ANSWER as error:
            found = [error] * len(asked)
        for (place, _), reply in zip(asked, found, strict=False):
            if place >= 0:
                replies[place] = reply
        told = found[len(asked) :]
        if slots.is_outdated and told and isinstance(told[-1], list):
            slots.update(told[-1], node)
        if copied and told and told[0] == 0:
            await self._look(self._known())
            raise StoreUnavailable("Redis wrote it, but no replica has it yet. Is one of the cluster's nodes down?")

    def node_of(self, command: Command) -> Address | None:
        """Return the master that a command goes to; None if there is one Redis, or nobody knows yet."""
        known = self._slots.map
        if known is None:
            return None
        slot = slot_of(command)
        return known.master(slot) if slot is not None else next(iter(known.masters), None)

    async def _look(self, nodes: Iterable[Address | None]) -> None:
        """Ask the first node that answers for the map."""
        for node in nodes:
            try:
                (reply,) = await _pipelined(self._at(node), [("CLUSTER", "SLOTS")])
            except _NO_ANSWER:
                continue
            if isinstance(reply, list) and reply:
                self._slots.update(reply, node or address_of(self._seeds[0]))
                return

    def _known(self) -> list[Address | None]:
        masters = self._slots.map.masters if self._slots.map else []
        return [*dict.fromkeys([*masters, *self._seed_addresses()])]

    def _seed_addresses(self) -> list[Address | None]:
        return [address_of(url) for url in self._seeds]

    async def _another_seed(self) -> bool:
        """After the first of several seeds did not answer: say whether another knows the cluster."""
        await self._look(self._seed_addresses()[1:])
        return self._slots.map is not None and self._tries > 1

    def _at(self, node: Address | None) -> Redis:
        """Return the connections to a node, which is reached as the first URL says; None is that URL's own."""
        if node not in self._pools:
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
        pool = BlockingConnectionPool(
            max_connections=self._connections,
            timeout=self._timeout_s,
            connection_class=_ours(kind),
            socket_timeout=self._timeout_s,
            socket_connect_timeout=REPLY_TIMEOUT_S,
            redis_connect_func=None if guard is None else guard.check_connection,
            # A pooled connection is found dead only when used: after a restart of Redis the second try is on a new one.
            retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), tries - 1),
            **(common | options),
        )
        return Redis.from_pool(pool)


async def _pipelined(client: Redis, commands: Sequence[Command]) -> list[Any]:
    """Return the replies; what a node answers with an error is one."""
    async with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)
        return await pipeline.execute(raise_on_error=False)


def raise_errors(commands: Sequence[Command], replies: list[Any]) -> list[Any]:
    """Return the replies; raise the first that is an error, with a note of what it answers."""
    for place, (command, reply) in enumerate(zip(commands, replies, strict=True)):
        if isinstance(reply, exceptions.RedisError | OSError):
            reply.add_note(f"It was the answer to {command[0]!r}, command {place + 1} of {len(commands)}.")
            raise reply
    return replies
