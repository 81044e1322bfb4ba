"""A private Redis Cluster: three masters and three replicas on free loopback ports."""

import asyncio
import contextlib
import secrets
import signal
from pathlib import Path
from typing import Any, Self

from redis.asyncio import Redis
from redis.exceptions import RedisError

from service.embedded.child_process import Child, Program
from service.embedded.ports import LOOPBACK, _is_free, is_listening
from service.embedded.private_redis import _server_binary
from service.errors import OperationalError
from tests.support.waiting import until

MASTERS = 3
NODES = 6
SLOTS = 16_384
_BUS = 10_000
_FAILED_AFTER_MS = 1_000


class RedisCluster:
    """Six Redis processes. Initially the first three nodes are masters and the others their replicas."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._children: dict[int, Child] = {}
        self.ports: list[int] = []

    @property
    def url(self) -> str:
        """The URL of the first node; clients discover the others."""
        return f"redis://{LOOPBACK}:{self.ports[0]}"

    @property
    def urls(self) -> str:
        """The URLs of all nodes, as a value for the setting ``redis_url``."""
        return ",".join(f"redis://{LOOPBACK}:{port}" for port in self.ports)

    async def ask(self, port: int, *command: str | int) -> Any:
        """Execute a command on one node."""
        async with Redis(host=LOOPBACK, port=port, decode_responses=True, socket_timeout=5) as client:
            return await client.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py leaves it untyped

    async def masters(self) -> list[int]:
        """Return the ports of the present masters, according to a node that responds."""
        for port in self.ports:
            try:
                ranges = await self.ask(port, "CLUSTER", "SLOTS")
            except (RedisError, OSError):
                continue
            return sorted({int(master[1]) for _, _, master, *_ in ranges})
        raise OperationalError("No node of the cluster answers.")

    async def clear(self) -> None:
        """Delete all keys on all masters."""
        for port in await self.masters():
            await self.ask(port, "FLUSHALL")

    async def kill(self, port: int) -> None:
        """Kill one node with SIGKILL."""
        child = self._children.pop(port)
        child._signal_group(signal.SIGKILL)
        await child.wait_for_exit()

    async def start_node(self, port: int) -> None:
        """Start a node with its previous data, if any."""
        directory = self._directory / str(port)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        argv = [_server_binary(), "--port", str(port), "--bind", LOOPBACK, "--dir", str(directory), "--save", ""]
        argv += ["--cluster-enabled", "yes", "--cluster-node-timeout", str(_FAILED_AFTER_MS)]
        argv += ["--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0"]
        # A replica is listed once it has received something: at the latest, its master's first ping.
        argv += ["--repl-ping-replica-period", "1", "--appendonly", "yes"]

        async def is_ready() -> bool:
            return await is_listening(port)

        child = await Child.start(Program(f"redis-{port}", tuple(argv), directory / "redis.log", is_ready))
        self._children[port] = child
        await child.wait_until_ready(30)

    async def whole(self) -> bool:
        """Return whether every running node knows all slots, and a replica of each master."""
        for port in self._children:
            ranges = await self.ask(port, "CLUSTER", "SLOTS")
            if sum(last - first + 1 for first, last, *_ in ranges) != SLOTS:
                return False
            if not all(replicas for _, _, _, *replicas in ranges):
                return False
            if "cluster_state:ok" not in str(await self.ask(port, "CLUSTER", "INFO")).replace("'", ""):
                return False
        return True

    async def _assemble(self) -> None:
        ids = [str(await self.ask(port, "CLUSTER", "MYID")) for port in self.ports]
        for place, port in enumerate(self.ports[:MASTERS]):
            await self.ask(port, "CLUSTER", "SET-CONFIG-EPOCH", place + 1)
            own = range(place * SLOTS // MASTERS, (place + 1) * SLOTS // MASTERS)
            await self.ask(port, "CLUSTER", "ADDSLOTS", *own)
        for place, port in enumerate(self.ports):
            for other in self.ports[:place]:
                await self.ask(port, "CLUSTER", "MEET", LOOPBACK, other)

        for port, master in zip(self.ports[MASTERS:], ids, strict=False):

            async def replicates(port: int = port, master: str = master) -> bool:
                with contextlib.suppress(RedisError):  # it does not know its master yet
                    await self.ask(port, "CLUSTER", "REPLICATE", master)
                    return True
                return False

            await until(replicates, "a replica knows its master", within_s=30)
        await until(self.whole, "the cluster is whole", within_s=30)

    async def __aenter__(self) -> Self:
        while len(self.ports) < NODES:
            port = 12_000 + secrets.randbelow(9_000)
            if port not in self.ports and _is_free(port) and _is_free(port + _BUS):
                self.ports.append(port)
        try:
            await asyncio.gather(*map(self.start_node, self.ports))
            await self._assemble()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for port in list(self._children):
            await self.kill(port)
