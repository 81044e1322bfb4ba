"""The compose stack with a Redis Cluster of six nodes: ``make containers``."""

import asyncio
import re
import time

import pytest

from tests.containers.stack import PROGRAMS, Reader, Stack, assert_confined
from tests.support.waiting import until_so

pytestmark = [pytest.mark.containers, pytest.mark.timeout(540), pytest.mark.asyncio(loop_scope="module")]

FILES = ("compose.cluster.yaml",)
NODES = ("redis", *(f"redis-{number}" for number in range(2, 7)))


class Cluster:
    """The nodes, asked from within their containers."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self.containers = {node: stack.name_of(node) for node in NODES}

    def ask(self, node: str, command: str) -> str:
        """Run a command on a node as the user of nodes."""
        login = 'REDISCLI_AUTH="$(cat /run/secrets/redis_cluster_password)" redis-cli --user cluster'
        return self._stack.podman("exec", self.containers[node], "sh", "-c", f"{login} {command}")

    def primaries(self) -> set[str]:
        """Return the nodes that say that they are primaries."""
        return {node for node in NODES if "role:master" in self.ask(node, "info replication")}

    def keys(self) -> dict[str, int]:
        """Return the number of keys of each primary."""
        found = {node: re.search(r"keys=(\d+)", self.ask(node, "info keyspace")) for node in self.primaries()}
        return {node: int(keys[1]) if keys else 0 for node, keys in found.items()}

    def addresses(self) -> dict[str, str]:
        """Return the address of each node."""
        containers = self._stack.containers(*NODES)
        found = [(each["Name"], list(each["NetworkSettings"]["Networks"].values())) for each in containers]
        return {name: network["IPAddress"] for name, (network,) in found}

    async def until_it_takes_writes(self) -> None:
        """Wait until each primary has a replica."""

        def is_replicated() -> bool:
            primaries = self.primaries()
            states = [self.ask(node, "info replication") for node in primaries]
            return len(primaries) == 3 and all(re.search("min_slaves_good_slaves:[1-9]", each) for each in states)

        await until_so(is_replicated, "each of three primaries has a replica", within_s=60)


@pytest.fixture(scope="module")
def cluster(stack: Stack) -> Cluster:
    return Cluster(stack)


async def test_all_containers_are_healthy_confined_and_within_their_limits(stack: Stack) -> None:
    assert_confined(stack)


async def test_an_entry_arrives_and_every_primary_has_keys(stack: Stack, reader: Reader, cluster: Cluster) -> None:
    stack.seconds["entry"] = await reader.deliver()
    keys = cluster.keys()
    assert set(keys) == {"redis", "redis-2", "redis-3"}
    assert min(keys.values()) > 0, keys


async def test_cluster_nodes_are_announced_by_host_name(cluster: Cluster) -> None:
    known = cluster.ask("redis-5", "cluster nodes")
    assert {line.split()[1].partition(",")[2] for line in known.splitlines()} == set(NODES)


async def test_clients_without_credentials_or_permissions_are_refused(cluster: Cluster, stack: Stack) -> None:
    container = cluster.containers["redis"]
    assert "NOAUTH" in stack.podman("exec", container, "redis-cli", "cluster", "info")
    assert "NOPERM" in cluster.ask("redis", "get cn:x")
    assert "NOPERM" in cluster.ask("redis", "cluster reset")


async def test_the_next_entry_arrives_after_a_primary_was_killed(
    stack: Stack, reader: Reader, cluster: Cluster
) -> None:
    for node in sorted(cluster.primaries()):
        began_s = time.monotonic()
        await stack.kill(cluster.containers[node])
        stack.seconds[f"{node} back"] = time.monotonic() - began_s
        stack.seconds[f"entry after {node}"] = await reader.deliver()
    assert not reader.verdict().broken


async def test_a_replica_takes_over_from_a_primary_that_hangs_and_is_then_killed(
    stack: Stack, reader: Reader, cluster: Cluster
) -> None:
    await cluster.until_it_takes_writes()
    hanging = min(cluster.primaries())
    others = cluster.primaries() - {hanging}
    began_s = time.monotonic()
    stack.podman("pause", cluster.containers[hanging])
    published = [await reader.publish()]

    def is_replaced() -> bool:
        answering = [node for node in NODES if node != hanging]
        return len([node for node in answering if "role:master" in cluster.ask(node, "info replication")]) == 3

    try:
        await until_so(is_replaced, "a replica has become a primary", within_s=60)
        stack.seconds["take-over"] = time.monotonic() - began_s
        published.append(await reader.publish())
    finally:
        stack.podman("unpause", cluster.containers[hanging])
    await stack.kill(cluster.containers[hanging])
    stack.seconds["entries after the take-over"] = await reader.deliver()
    assert others < cluster.primaries()
    assert hanging not in cluster.primaries()
    assert not reader.verdict().broken, published


async def test_the_cluster_survives_a_start_of_all_nodes_at_other_addresses(
    stack: Stack, reader: Reader, cluster: Cluster
) -> None:
    await cluster.until_it_takes_writes()
    before, keys = cluster.addresses(), sum(cluster.keys().values())
    stack.podman("stop", "--time", "15", *cluster.containers.values())
    began_s = time.monotonic()
    for container in reversed(cluster.containers.values()):
        stack.podman("start", container)
    after = cluster.addresses()
    assert not before.items() & after.items(), "podman gives each start another address"
    await stack.until_healthy(*NODES)
    await cluster.until_it_takes_writes()
    stack.seconds["cluster back at other addresses"] = time.monotonic() - began_s
    await stack.until_healthy(*PROGRAMS)
    stack.seconds["entry after that"] = await reader.deliver()
    assert sum(cluster.keys().values()) > keys / 2
    assert not reader.verdict().broken


async def test_a_primary_that_lost_its_volume_becomes_a_replica_of_its_replica(
    stack: Stack, reader: Reader, cluster: Cluster
) -> None:
    await cluster.until_it_takes_writes()
    emptied, keys = min(cluster.primaries()), sum(cluster.keys().values())
    stack.podman("exec", cluster.containers[emptied], "sh", "-c", "rm -r /var/lib/coronet/*")
    await stack.kill(cluster.containers[emptied])
    await complete(stack)
    assert emptied not in cluster.primaries()
    assert sum(cluster.keys().values()) > keys / 2
    await reader.deliver()
    assert not reader.verdict().broken


async def complete(stack: Stack) -> None:
    """Run ``redis-init`` again."""
    stack.podman("start", stack.name_of("redis-init"))
    await asyncio.to_thread(stack.wait_for_exit, "redis-init")


async def test_creating_the_cluster_again_changes_nothing(stack: Stack, reader: Reader, cluster: Cluster) -> None:
    await cluster.until_it_takes_writes()
    before = cluster.primaries()
    await complete(stack)
    log = stack.podman("logs", stack.name_of("redis-init")).splitlines()
    assert log[-2:] == ["All slots are assigned.", "The cluster takes writes."]
    assert cluster.primaries() == before
    await reader.deliver()
    assert not reader.verdict().broken
