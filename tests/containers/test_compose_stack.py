"""The compose stack in containers, run by podman in a network namespace: ``make containers``."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import yaml

from tests.containers.build import COMPOSE, tags
from tests.containers.engine import environment, podman
from tests.support.chat import ChatClient
from tests.support.netns import started
from tests.support.public_publisher import PublicPublisher
from tests.support.waiting import until

pytestmark = [pytest.mark.containers, pytest.mark.timeout(540), pytest.mark.asyncio(loop_scope="module")]

PUBLISHER = "44.128.7.9"
FEED = "http://news.example.org/feed"
MAX_BYTES = 250_000_000
QUICK = {
    "CORONET_POLL_INTERVAL_S": "5",
    "CORONET_POLLS_PER_HOUR_FOR_ONE_SUBSCRIBER": "1800",
    "CORONET_MAX_POLLS_PER_HOUR": "1800",
    "CORONET_DEMAND_FACTOR": "1",
}
PROGRAMS = ("worker", "bot", "console")
UNITS = {"M": 1 << 20, "G": 1 << 30}


class Stack:
    """The running stack."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = environment(building=False)
        self.seconds: dict[str, float] = {}

    def compose(self, *arguments: str) -> None:
        """Run podman-compose in the stack's folder."""
        argv = [str(Path(sys.executable).with_name("podman-compose")), "-p", "coronet", *arguments]
        done = subprocess.run(argv, env=self.environ, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{arguments}\n{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"

    def podman(self, *arguments: str, given: str | None = None) -> str:
        """Run podman."""
        return podman(self.environ, *arguments, given=given)

    def containers(self) -> list[dict[str, Any]]:
        """Return what podman knows of each container."""
        found = self.podman("ps", "--all", "--quiet").split()
        return list(json.loads(self.podman("container", "inspect", *found))) if found else []

    def print_logs(self) -> None:
        """Print the end of each container's log, which pytest shows if a test fails."""
        for container in self.containers():
            argv = ["podman", "logs", "--tail=40", container["Id"]]
            log = subprocess.run(argv, env=self.environ, capture_output=True, check=False)
            sys.stdout.write(f"== {container['Name']}\n{(log.stdout + log.stderr).decode(errors='replace')}\n")

    async def is_healthy(self, name: str) -> bool:
        """Run the health check of a container once."""
        process = await asyncio.create_subprocess_exec(
            *("podman", "healthcheck", "run", name),
            env=self.environ,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return await process.wait() == 0

    async def until_healthy(self, *services: str) -> None:
        """Wait until the health checks of all containers of these services succeed."""
        for container in self.containers():
            if service_of(container) in services:
                await self.until_one_is_healthy(container["Name"])

    async def until_one_is_healthy(self, name: str) -> None:
        """Wait until the health check of a container succeeds."""
        await until(lambda: self.is_healthy(name), f"{name} is healthy", within_s=60)


def service_of(container: dict[str, Any]) -> str:
    """Return the service of a container."""
    return str(container["Config"]["Labels"]["com.docker.compose.service"])


def services() -> dict[str, Any]:
    """Return the services of compose.yaml."""
    return dict(yaml.safe_load((COMPOSE / "compose.yaml").read_text(encoding="utf-8"))["services"])


def adapted(text: str) -> dict[str, Any]:
    """Return a compose file without what this podman and podman-compose cannot do.

    The images are built already, the test starts the services in order, and polls are quick.
    """
    stack: dict[str, Any] = yaml.safe_load(text)
    for name, service in stack["services"].items():
        for part in ("build", "logging", "depends_on"):
            service.pop(part, None)
        service["image"] = f"localhost/{service['image']}"
        kind, *command = service.get("healthcheck", {}).get("test", [""])
        if kind == "CMD-SHELL":
            service["healthcheck"]["test"] = ["CMD", "sh", "-c", *command]
        if "replicas" in service.get("deploy", {}):
            service["deploy"]["mode"] = "replicated"
        if name in PROGRAMS:
            service["environment"] |= QUICK
    stack["networks"]["front"] = {}
    return stack


def prepare_namespace(resolver: Path) -> None:
    """Give this namespace a name server and a public address."""
    subprocess.run(["mount", "--bind", resolver, "/etc/resolv.conf"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "address", "add", f"{PUBLISHER}/32", "dev", "lo"], check=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def publisher(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PublicPublisher]:
    scratch = tmp_path_factory.mktemp("publisher")
    resolver = scratch / "resolv.conf"
    resolver.write_text("nameserver 127.0.0.1\n", encoding="utf-8")
    prepare_namespace(resolver)
    (scratch / "zone.json").write_text(json.dumps({"news.example.org": [[PUBLISHER]]}), encoding="utf-8")
    with started([sys.executable, "-m", "tests.support.public_publisher", str(scratch)]):
        connector = aiohttp.UnixConnector(path=str(scratch / "control.sock"))
        async with aiohttp.ClientSession(connector=connector) as http:
            yield PublicPublisher(scratch / "requests.jsonl", http)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, publisher: PublicPublisher
) -> AsyncIterator[Stack]:
    assert publisher
    folder = tmp_path_factory.mktemp("stack") / "compose"
    shutil.copytree(COMPOSE, folder, ignore=shutil.ignore_patterns("secrets", "state"))
    path = folder / "compose.yaml"
    path.write_text(yaml.safe_dump(adapted(path.read_text(encoding="utf-8"))), encoding="utf-8")
    stack = Stack(folder)
    try:
        began_s = time.monotonic()
        stack.compose("--profile", "bootstrap", "run", "--rm", "bootstrap")
        stack.compose("up", "--detach", "redis", "prosody")
        await stack.until_healthy("redis", "prosody")
        stack.compose("up", "--detach", *PROGRAMS)
        await stack.until_healthy(*PROGRAMS)
        stack.seconds["start"] = time.monotonic() - began_s
        yield stack
    finally:
        stack.print_logs()
        began_s = time.monotonic()
        stack.compose("down", "--volumes")
        stack.seconds["stop"] = time.monotonic() - began_s
        measured = ", ".join(f"{name} {value:.1f} s" for name, value in stack.seconds.items())
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            sys.stdout.write(f"\n{measured}\n")
        left = [stack.podman(kind, "ls", "--quiet").split() for kind in ("container", "volume", "network")]
        assert left == [[], [], ["podman"]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def alice(stack: Stack) -> AsyncIterator[ChatClient]:
    (prosody,) = (each["Name"] for each in stack.containers() if service_of(each) == "prosody")
    stack.podman("exec", "-i", prosody, "prosodyctl", "adduser", "alice@localhost", given="secret\nsecret\n")
    client = ChatClient("alice@localhost", "secret", "127.0.0.1", 5222, "coronet@feeds.localhost")
    try:
        yield await client.start()
    finally:
        await client.stop()


async def deliver(publisher: PublicPublisher, alice: ChatClient, title: str) -> float:
    """Publish an entry, wait for its notification, and return how long that took."""
    began_s = time.monotonic()
    await publisher.publish(FEED, title)
    await alice.wait_for(lambda message: title in message.body and not message.thread, 90)
    return time.monotonic() - began_s


async def test_everything_runs_confined_within_its_limits(stack: Stack) -> None:
    written, containers = services(), stack.containers()
    wanted = {name: each.get("deploy", {}).get("replicas", 1) for name, each in written.items() if name != "bootstrap"}
    running = [service_of(each) for each in containers if each["State"]["Running"]]
    assert {name: running.count(name) for name in wanted} == wanted
    for each in containers:
        limits, host = written[service_of(each)]["deploy"]["resources"]["limits"], each["HostConfig"]
        assert host["Memory"] == int(limits["memory"][:-1]) * UNITS[limits["memory"][-1]], each["Name"]
        assert host["PidsLimit"] == limits["pids"], each["Name"]
        assert host["ReadonlyRootfs"], each["Name"]
        status = Path(f"/proc/{each['State']['Pid']}/status").read_text(encoding="utf-8")
        fields = dict(line.split(":\t", 1) for line in status.splitlines())
        assert (fields["CapEff"], fields["CapBnd"], fields["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1"), each["Name"]
        assert fields["Uid"].split() == ["10001"] * 4, each["Name"]
        with pytest.raises(subprocess.CalledProcessError):
            stack.podman("exec", each["Name"], "touch", "/written")


async def test_our_image_is_small_and_labelled(stack: Stack) -> None:
    (image,) = json.loads(stack.podman("image", "inspect", f"localhost/{tags()['coronet']}"))
    assert image["Size"] <= MAX_BYTES
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in image["Labels"].items()}
    version = tags()["coronet"].partition(":")[2]
    assert (labels["title"], labels["version"], labels["licenses"]) == ("Coronet", version, "Apache-2.0")


async def test_an_entry_arrives_and_the_next_one_after_each_kill(
    stack: Stack, publisher: PublicPublisher, alice: ChatClient
) -> None:
    assert FEED in await alice.say(FEED) + await alice.say("list")
    stack.seconds["entry"] = await deliver(publisher, alice, "The first news")
    for container in stack.containers():
        name, pid = container["Name"], container["State"]["Pid"]
        began_s = time.monotonic()
        os.kill(pid, signal.SIGKILL)  # `podman kill` would be an operator's stop, after which nothing is restarted

        async def is_back(name: str = name, pid: int = pid) -> bool:
            with contextlib.suppress(subprocess.CalledProcessError):
                state = json.loads(stack.podman("container", "inspect", name))[0]["State"]
                return bool(state["Running"] and state["Pid"] != pid)
            return False

        await until(is_back, f"{name} is started again", within_s=30)
        await stack.until_one_is_healthy(name)
        stack.seconds[f"{name} back"] = time.monotonic() - began_s
        stack.seconds[f"entry after {name}"] = await deliver(publisher, alice, f"News after the end of {name}")
    assert sum("The first news" in message.body for message in alice.notifications) == 1
