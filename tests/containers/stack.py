"""The compose stack, run by podman-compose from a copy of its folder."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from service.embedded.sample_publisher import PublishedEntry
from tests.containers.build import COMPOSE, local_name
from tests.containers.engine import environment, podman
from tests.support.chat import ChatClient, online
from tests.support.delivery_audit import Subscribed, Verdict, audit, tagged
from tests.support.public_publisher import PublicPublisher
from tests.support.waiting import until

SITE = "http://news.example.org"
QUICK = {
    "CORONET_POLL_INTERVAL_S": "5",
    "CORONET_POLLS_PER_HOUR_FOR_ONE_SUBSCRIBER": "1800",
    "CORONET_MAX_POLLS_PER_HOUR": "1800",
    "CORONET_DEMAND_FACTOR": "1",
}
PROGRAMS = ("worker", "bot", "console")
UNITS = {"M": 1 << 20, "G": 1 << 30}


class Stack:
    """The running stack. ``seconds`` is what was measured, which is printed at the end."""

    def __init__(self, folder: Path, files: Sequence[str], left_out: Sequence[str] = ()) -> None:
        """Copy the compose folder to ``folder``; ``left_out`` are services whose images cannot be had."""
        self.folder = folder
        self.environ = environment(building=False)
        self.seconds: dict[str, float] = {}
        shutil.copytree(COMPOSE, folder, ignore=shutil.ignore_patterns("secrets", "state"))
        self.use(files, left_out)

    def use(self, files: Sequence[str], left_out: Sequence[str] = ()) -> None:
        """Use these compose files from now on."""
        self.files = files
        self.services = {name: each for name, each in merged_services(files).items() if name not in left_out}
        for name in files:
            stack = adapted((COMPOSE / name).read_text(encoding="utf-8"), left_out)
            (self.folder / name).write_text(yaml.safe_dump(stack), encoding="utf-8")

    def compose(self, *arguments: str) -> None:
        """Run podman-compose in the stack's folder."""
        argv = [str(Path(sys.executable).with_name("podman-compose")), "-p", "coronet"]
        argv += [word for name in self.files for word in ("-f", name)]
        done = subprocess.run(
            [*argv, *arguments], env=self.environ, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"

    def podman(self, *arguments: str, given: str | None = None) -> str:
        """Run podman."""
        return podman(self.environ, *arguments, given=given)

    async def start(self, *, without: Sequence[str] = ()) -> None:
        """Create the secrets, and start all services in the order of their ``depends_on``."""
        began_s = time.monotonic()
        self.compose("--profile", "bootstrap", "run", "--rm", "bootstrap")
        waiting = {name: each for name, each in self.services.items() if "profiles" not in each and name not in without}
        conditions = {
            name: needs["condition"] for each in self.services.values() for name, needs in needed(each).items()
        }
        while waiting:
            startable = [name for name, each in waiting.items() if not needed(each).keys() & waiting.keys()]
            assert startable, f"{sorted(waiting)} wait for each other"
            self.compose("up", "--detach", "--no-deps", *startable)
            for name in startable:
                if conditions.get(name) == "service_completed_successfully":
                    self.wait_for_exit(name)
                else:
                    await self.until_healthy(name)
                del waiting[name]
        self.seconds["start"] = time.monotonic() - began_s

    def wait_for_exit(self, service: str) -> None:
        """Wait until a service has ended; assert that it has succeeded."""
        (container,) = self.containers(service)
        status = self.podman("wait", container["Name"])
        assert status == "0", f"{service} has ended with {status}: see its log"

    def containers(self, *only: str) -> list[dict[str, Any]]:
        """Return what podman knows of each container, or of those of some services."""
        found = self.podman("ps", "--all", "--quiet").split()
        known = json.loads(self.podman("container", "inspect", *found)) if found else []
        return [each for each in known if not only or service_of(each) in only]

    def name_of(self, service: str) -> str:
        """Return the name of the only container of a service."""
        (container,) = self.containers(service)
        return str(container["Name"])

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
        for container in self.containers(*services):
            await self.until_one_is_healthy(container["Name"])

    async def until_one_is_healthy(self, name: str) -> None:
        """Wait until the health check of a container succeeds."""
        await until(lambda: self.is_healthy(name), f"{name} is healthy", within_s=60)

    async def kill(self, name: str) -> None:
        """Kill -9 a container's first process, and wait until the engine has started the container again."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)  # `podman kill` would be an operator's stop, after which nothing is restarted

        async def is_back() -> bool:
            with contextlib.suppress(subprocess.CalledProcessError):
                return self.pid(name) not in (pid, 0)
            return False

        await until(is_back, f"{name} is started again", within_s=30)
        await self.until_one_is_healthy(name)

    def pid(self, name: str) -> int:
        """Return the process id of a container's first process on this machine; 0 while it does not run."""
        return int(json.loads(self.podman("container", "inspect", name))[0]["State"]["Pid"])


def service_of(container: dict[str, Any]) -> str:
    """Return the service of a container."""
    return str(container["Config"]["Labels"]["com.docker.compose.service"])


def needed(service: Mapping[str, Any]) -> dict[str, Any]:
    """Return the services that a service waits for, with their conditions."""
    return dict(service.get("depends_on", {}))


def merged_services(files: Sequence[str]) -> dict[str, Any]:
    """Return the services of several compose files, as an engine merges them."""
    found: dict[str, Any] = {}
    for name in files:
        found = merged(found, yaml.safe_load((COMPOSE / name).read_text(encoding="utf-8"))["services"])
    return found


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return two mappings as one: inner mappings are merged, of all else the second has precedence."""
    both = {
        key: merged(first[key], value) if isinstance(value, dict) and isinstance(first.get(key), dict) else value
        for key, value in second.items()
    }
    return {**first, **both}


def adapted(text: str, left_out: Sequence[str]) -> dict[str, Any]:
    """Return a compose file without what this podman and podman-compose cannot do.

    The images are built already, the test starts the services in order, and polls are quick.
    """
    stack: dict[str, Any] = yaml.safe_load(text)
    for name in left_out:
        stack["services"].pop(name, None)
    for name, service in stack["services"].items():
        for part in ("build", "logging", "depends_on"):
            service.pop(part, None)
        if "image" in service:
            service["image"] = local_name(service["image"])
        if "replicas" in service.get("deploy", {}):
            service["deploy"]["mode"] = "replicated"
        if name in PROGRAMS:
            service["environment"] = service.get("environment", {}) | QUICK
    if "front" in stack.get("networks", {}):
        stack["networks"]["front"] = {}
    return stack


@contextlib.asynccontextmanager
async def running(
    request: pytest.FixtureRequest, folder: Path, *files: str, left_out: Sequence[str] = ()
) -> AsyncIterator[Stack]:
    """Run the stack of several compose files; remove all of it afterwards, and print what was measured."""
    stack = Stack(folder / "compose", ("compose.yaml", *files), left_out)
    try:
        await stack.start()
        yield stack
    finally:
        stack.print_logs()
        began_s = time.monotonic()
        stack.compose("down", "--volumes")
        stack.seconds["stop"] = time.monotonic() - began_s
        measured = ", ".join(f"{name} {value:.1f} s" for name, value in stack.seconds.items())
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            sys.stdout.write(f"\n{' and '.join(stack.files)}: {measured}\n")
        left = [stack.podman(kind, "ls", "--quiet").split() for kind in ("container", "volume", "network")]
        assert left == [[], [], ["podman"]]


def assert_confined(stack: Stack) -> None:
    """Assert that each service runs as often as its file says, healthy, without privileges and within its limits."""
    containers = stack.containers()
    lasting = {name for name, each in stack.services.items() if "profiles" not in each and each.get("restart") != "no"}
    wanted = {name: stack.services[name]["deploy"].get("replicas", 1) for name in lasting}
    running = [service_of(each) for each in containers if each["State"]["Running"]]
    assert {name: running.count(name) for name in {*wanted, *running}} == wanted
    for each in containers:
        service, host, name = stack.services[service_of(each)], each["HostConfig"], each["Name"]
        limits = service["deploy"]["resources"]["limits"]
        assert host["Memory"] == int(limits["memory"][:-1]) * UNITS[limits["memory"][-1]], name
        assert host["PidsLimit"] == limits["pids"], name
        assert host["NanoCpus"] == int(float(limits["cpus"]) * 1e9), name
        assert host["ReadonlyRootfs"], name
        if not each["State"]["Running"]:
            continue
        assert each["Config"]["Healthcheck"]["Test"], name
        status = Path(f"/proc/{each['State']['Pid']}/status").read_text(encoding="utf-8")
        fields = dict(line.split(":\t", 1) for line in status.splitlines())
        assert (fields["CapEff"], fields["CapBnd"], fields["NoNewPrivs"]) == ("0" * 16, "0" * 16, "1"), name
        assert fields["Uid"].split() == [service["user"].partition(":")[0]] * 4, name
        with pytest.raises(subprocess.CalledProcessError):
            stack.podman("exec", name, "touch", "/written")


class Reader:
    """A person who is subscribed to a feed of the publisher, and whom each of its entries has to reach once."""

    def __init__(self, publisher: PublicPublisher, client: ChatClient, feed: str) -> None:
        self._publisher = publisher
        self._client = client
        self._feed = feed
        self._subscribed = Subscribed(client.jid, 0, time.time())
        self._published: list[PublishedEntry] = []

    async def publish(self) -> str:
        """Publish the next entry; return its title."""
        title = tagged(0, len(self._published) + 1)
        at_s = await self._publisher.publish(self._feed, title)
        self._published.append(PublishedEntry(0, title, self._feed, title, at_s))
        return title

    async def deliver(self) -> float:
        """Publish an entry, wait for its notification, and return how long that took (s)."""
        began_s = time.monotonic()
        title = await self.publish()
        await self._client.wait_for(lambda message: title in message.body and not message.thread, 90)
        return time.monotonic() - began_s

    def verdict(self) -> Verdict:
        """Return the audit of all deliveries so far."""
        jid = self._client.jid
        received = {jid: [message for message in self._client.received if not message.thread]}
        return audit(self._published, [self._subscribed], received, {jid: {0}})


@contextlib.asynccontextmanager
async def reader(stack: Stack, publisher: PublicPublisher) -> AsyncIterator[Reader]:
    """Create an account on the stack's XMPP server, and subscribe it to a new feed."""
    feed = f"{SITE}/{uuid.uuid4().hex[:8]}"
    stack.podman(
        *("exec", "-i", stack.name_of("prosody"), "prosodyctl", "adduser", "alice@localhost"), given="secret\nsecret\n"
    )
    async with online("alice@localhost", "secret", "127.0.0.1", 5222, "coronet@feeds.localhost") as client:
        assert "Subscribed" in await client.say(feed)
        yield Reader(publisher, client, feed)


@contextlib.asynccontextmanager
async def publisher_in(scratch: Path) -> AsyncIterator[PublicPublisher]:
    """Yield the client of the publisher that runs over ``scratch``."""
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(path=str(scratch / "control.sock"))) as http:
        yield PublicPublisher(scratch / "requests.jsonl", http)
