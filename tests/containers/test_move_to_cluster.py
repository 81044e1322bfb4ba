"""The data of the compose stack is moved from its single Redis to a Redis Cluster, as its README says."""

import time

import pytest

from tests.containers.stack import PROGRAMS, Reader, Stack

pytestmark = [pytest.mark.containers, pytest.mark.timeout(540), pytest.mark.asyncio(loop_scope="module")]

FILES = ()


async def test_subscriptions_continue_on_the_cluster(stack: Stack, reader: Reader) -> None:
    await reader.deliver()
    stack.podman("exec", stack.name_of("console"), "coronet", "backup", "/state/backup")
    began_s = time.monotonic()
    stack.compose("down")
    stack.use(("compose.yaml", "compose.cluster.yaml"))
    await stack.start(without=PROGRAMS)
    stack.compose("run", "--rm", "--no-deps", "console", "restore", "/state/backup")
    await stack.start()
    stack.seconds["move"] = time.monotonic() - began_s
    await reader.deliver()
    assert not reader.verdict().broken
