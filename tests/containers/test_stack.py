"""The compose stack: ``make containers``."""

import json
import time

import pytest

from tests.containers.build import tags
from tests.containers.stack import Reader, Stack, assert_confined

pytestmark = [pytest.mark.containers, pytest.mark.timeout(540), pytest.mark.asyncio(loop_scope="module")]

FILES = ()
MAX_BYTES = 250_000_000


async def test_all_containers_are_healthy_confined_and_within_their_limits(stack: Stack) -> None:
    assert_confined(stack)


@pytest.mark.parametrize("image", tags().values(), ids=tags())
async def test_an_image_is_small_labelled_and_checks_its_health(stack: Stack, image: str) -> None:
    (found,) = json.loads(stack.podman("image", "inspect", f"localhost/{image}"))
    assert found["Size"] <= MAX_BYTES
    assert found["Healthcheck"]["Test"]
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in found["Labels"].items()}
    assert labels["version"] == image.partition(":")[2]
    assert labels["title"].endswith("Coronet")
    assert labels["licenses"].startswith("Apache-2.0")
    assert len(labels["revision"]) == 40, "the commit from which it was built"


async def test_an_entry_arrives(stack: Stack, reader: Reader) -> None:
    stack.seconds["entry"] = await reader.deliver()


async def test_the_next_entry_arrives_after_each_kill(stack: Stack, reader: Reader) -> None:
    for container in stack.containers():
        name = container["Name"]
        began_s = time.monotonic()
        await stack.kill(name)
        stack.seconds[f"{name} back"] = time.monotonic() - began_s
        stack.seconds[f"entry after {name}"] = await reader.deliver()
    assert not reader.verdict().broken
