"""The four ways in which the README and the guides start Coronet, each from a bare Debian to a first notification.

Each returns how long its steps took (s). A step is what a person waits for: ``packages`` of Debian that the guide
names, ``install``, ``start`` until it is ready, and ``notification`` of an entry that was published after the
subscription.
"""

import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.first_run.machine import USER, Machine, machine, run
from tests.first_run.notification import Account, wait_for_notification
from tests.support.waiting import until

READY_WITHIN_S = 300.0
"""`make run` sets everything up at its first start."""
_DOMAIN = "example.org"
_BOT = f"coronet@feeds.{_DOMAIN}"
_FEED_PORT = 18_080
# Feeds of loopback, because the machine reaches no others, and short intervals as `coronet up` has them.
_TRIAL = 'preset = "trial"\nallow_private = true\n'


class Steps:
    """A stopwatch."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last_s = time.monotonic()

    def resume(self) -> None:
        """Do not count the time since the last step."""
        self._last_s = time.monotonic()

    def end(self, step: str) -> None:
        """Note how long a step took, which began when the one before ended."""
        now_s = time.monotonic()
        self.seconds[step] = round(now_s - self._last_s, 1)
        self._last_s = now_s


async def make_run(root: Path, repository: Path, wheel: Path) -> dict[str, float]:
    """``make run`` in a clone of the repository, as root."""
    assert wheel
    async with machine(root) as host:
        steps = await _clone(host, repository)
        ready = Path("/root/ready.json")
        async with host.running(f'cd coronet && exec make run ARGS="--ready-file {ready}"'):
            await _trial(host, ready, steps)
        return steps.seconds


async def _clone(host: Machine, repository: Path) -> Steps:
    """Install what a clone needs, and clone the repository in root's home."""
    shutil.copytree(repository, host.root / "root/coronet.git")
    steps = Steps()
    await host.install("git", "make", "python3-venv")
    steps.end("packages")
    await host.run("git clone --quiet --branch main file:///root/coronet.git")
    steps.end("install")
    return steps


async def wheel_with_up(root: Path, repository: Path, wheel: Path) -> dict[str, float]:
    """The wheel, installed by pipx for a person's account, and ``coronet up --small``."""
    assert repository
    async with machine(root) as host:
        await host.run(f"useradd --create-home {USER}")
        shutil.copy(wheel, root / "home" / USER)
        steps = Steps()
        await host.install("redis-server", "prosody", "openssl", "pipx")
        steps.end("packages")
        await host.run(f"pipx install ./{wheel.name}", USER)
        steps.end("install")
        ready = Path("/home") / USER / "ready.json"
        options = f"--small --allow-private --ready-file {ready}"
        async with host.running(f"exec .local/bin/coronet up {options}", USER):
            await _trial(host, ready, steps)
        return steps.seconds


async def _trial(host: Machine, ready_file: Path, steps: Steps) -> None:
    """Wait until `coronet up` is ready, and for an entry of its sample feed."""
    file = host.root / ready_file.relative_to("/")

    async def is_ready() -> bool:
        return file.exists()

    await until(is_ready, f"ready; see {host.root}/running.log", within_s=READY_WITHIN_S)
    steps.end("start")
    ready = json.loads(file.read_bytes())
    xmpp = ready["xmpp"]
    login = xmpp["accounts"][0]
    account = Account(login["jid"], login["password"], xmpp["port"], xmpp["bot_jid"])
    await wait_for_notification(account, ready["sample_feed_url"])
    steps.end("notification")


async def wheel_as_service(root: Path, repository: Path, wheel: Path) -> dict[str, float]:
    """The wheel as a service of systemd, with Debian's Redis and Prosody."""
    assert repository
    shutil.copy(wheel, root / "root")
    async with machine(root) as host:
        # Any Debian but the barest has these, and systemd runs already.
        await host.install("systemd", "iproute2")
        steps = Steps()
        await host.install("redis-server", "prosody", "python3-venv")
        steps.end("packages")
        await host.run(f"python3 -m venv /opt/coronet && /opt/coronet/bin/pip install ./{wheel.name}")
        steps.end("install")
    async with machine(root, with_systemd=True) as host:
        steps.resume()
        await _configure(host)
        await host.run("systemctl daemon-reload && systemctl enable --now coronet")
        steps.end("start")
        await host.run("systemctl enable --now coronet-backup.timer && systemctl start coronet-backup.service")
        checked = json.loads(
            await host.run("/opt/coronet/bin/coronet doctor --config /etc/coronet/coronet.toml --json || true")
        )
        if checked["severity"] == "error":
            raise RuntimeError(f"The doctor says: {checked}")
        steps.end("backup and doctor")
        await host.run(f"printf 'secret\\nsecret\\n' | prosodyctl adduser {USER}@{_DOMAIN}")
        feed = f"http://127.0.0.1:{_FEED_PORT}"
        publisher = f"exec /opt/coronet/bin/coronet sample-publisher --directory /tmp/journal --port {_FEED_PORT}"
        async with host.running(publisher):
            argv = ("-m", "tests.first_run.notification", f"{USER}@{_DOMAIN}", "secret", "5222", _BOT)
            await run(host.beside(sys.executable, *argv, f"{feed}/feed.xml", f"{feed}/publish"), "the person")
        steps.end("notification")
        return steps.seconds


async def _configure(host: Machine) -> None:
    """Follow the guide for operators, from the settings of Redis to those of Coronet."""
    await host.run("sed -i 's/^appendonly no/appendonly yes/' /etc/redis/redis.conf && systemctl restart redis-server")
    prosody = host.root / "etc/prosody/prosody.cfg.lua"
    append(prosody, f'VirtualHost "{_DOMAIN}"')
    await host.run(
        # In place of certbot, which needs a public address.
        f"""live=/etc/letsencrypt/live/{_DOMAIN}
        mkdir -p $live
        openssl req -x509 -newkey rsa:2048 -nodes -subj /CN={_DOMAIN} -addext subjectAltName=DNS:{_DOMAIN} \
            -keyout $live/privkey.pem -out $live/fullchain.pem
        prosodyctl --root cert import /etc/letsencrypt/live"""
    )
    await host.run(
        """cd /opt/coronet/share/coronet/systemd
        cp *.service *.timer /etc/systemd/system/
        install -D -m 644 coronet.sysusers /etc/sysusers.d/coronet.conf
        cp coronet.tmpfiles /etc/tmpfiles.d/coronet.conf
        systemd-sysusers && systemd-tmpfiles --create coronet.conf"""
    )
    answers = {"domain": _DOMAIN, "xmpp": "component", "server": "prosody"}
    (host.root / "root/answers.json").write_text(json.dumps(answers), encoding="utf-8")
    setup = "/opt/coronet/bin/coronet setup --config /etc/coronet/coronet.toml --answers answers.json --overwrite"
    printed = await host.run(f"{setup} || true")  # Prosody does not know the component yet
    snippet = re.search(r'^\s*Component "feeds.*?(?=^\S|\Z)', printed, re.MULTILINE | re.DOTALL)
    if snippet is None:
        raise RuntimeError(f"coronet setup printed no snippet for Prosody:\n{printed}")
    append(prosody, snippet[0])
    await host.run("systemctl restart prosody")
    settings = host.root / "etc/coronet/coronet.toml"
    settings.write_text(_TRIAL + settings.read_text(encoding="utf-8"), encoding="utf-8")
    await host.run("systemd-tmpfiles --create coronet.conf")


def append(file: Path, text: str) -> None:
    """Add text to the end of a file."""
    with file.open("a", encoding="utf-8") as opened:
        opened.write(f"\n{text}\n")


async def containers(root: Path, repository: Path, wheel: Path) -> dict[str, float]:
    """The compose stack: images built and run by podman."""
    assert wheel
    async with machine(root) as host:
        steps = await _clone(host, repository)
        printed = await host.run("cd coronet && make containers ARGS='-k test_an_entry_arrives'")
        steps.end("images, start and notification")
        measured = re.search(r"compose.yaml: start ([\d.]+) s, entry ([\d.]+) s", printed)
        if measured is None:
            raise RuntimeError(printed)
        steps.seconds |= {"start": float(measured[1]), "notification": float(measured[2])}
        return steps.seconds


WAYS: dict[str, Callable[[Path, Path, Path], Coroutine[Any, Any, dict[str, float]]]] = {
    "make run": make_run,
    "coronet up --small": wheel_with_up,
    "coronet serve": wheel_as_service,
    "containers": containers,
}
