"""``coronet up``: everything on one machine, set up in parallel and kept running until told to end."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.status import Status

from service.embedded import ports, state_directory
from service.embedded.prosody import PrivateProsody
from service.embedded.redis import PrivateRedis
from service.embedded.state_directory import Ready, TrialAccount, Xmpp, processes, write_ready
from service.embedded.supervisor import Program, Supervisor, environment
from service.errors import StoreIdentityMismatch
from service.files import ensure_secret_file, write_private
from service.settings import load
from service.shutdown import run_until_stopped
from service.store import opened

SAMPLE_INTERVAL_S: Final = 30
_STOPPED_LAST: Final = frozenset({"redis", "prosody"})


@dataclass(frozen=True)
class Wanted:
    """What was asked for. A port of 0 means a free one, the same at every start."""

    directory: Path
    workers: int
    bots: int
    console_port: int
    xmpp_port: int
    sample_feeds: bool
    allow_private: bool
    poll_interval_s: float | None
    ready_file: Path | None


async def up(wanted: Wanted, console: Console) -> None:
    """Run everything until SIGTERM or Ctrl-C, and then end every child within 10 s.

    Raises :class:`CoronetError` when something cannot be started, or the directory is in use.
    """
    with state_directory.held(wanted.directory):
        await run_until_stopped(_run(Machine(wanted, Screen(console))))


async def _run(machine: "Machine") -> None:
    try:
        await machine.start()
        await asyncio.Event().wait()
    finally:
        await machine.stop()


class Screen:
    """Shows what is being started; an entry disappears from the spinner when its line is printed."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._pending: list[str] = []

    def say(self, text: str) -> None:
        """Print plain text; nothing in it is markup, and links are not broken."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    async def step(self, what: str, doing: Awaitable[None]) -> None:
        """Show that something is being done, and then how long it took."""
        since_s = time.monotonic()
        self._pending.append(what)
        self._spin()
        try:
            await doing
        finally:
            self._pending.remove(what)
            self._spin()
        self.say(f"  {what} is ready ({time.monotonic() - since_s:.1f} s)")

    def _spin(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._pending:
            self._status = self._console.status(f"Starting {', '.join(self._pending)} …")
            self._status.start()


class Machine:
    """All parts on this machine, wired to each other."""

    def __init__(self, wanted: Wanted, screen: Screen) -> None:
        self._wanted = wanted
        self._screen = screen
        self._ports = ports.choose(
            wanted.directory / "ports.json",
            {"console": wanted.console_port, "xmpp": wanted.xmpp_port}
            | dict.fromkeys(["component", "sample publisher", *self._bot_names(), *self._worker_names()], 0),
        )
        self._redis = PrivateRedis(wanted.directory / "redis")
        self._prosody = PrivateProsody(
            wanted.directory / "prosody", self._ports["xmpp"], self._ports["component"], shards=wanted.bots - 1
        )
        self._admin_token_file = ensure_secret_file(wanted.directory, "admin-token")
        self._cluster_secret_file = ensure_secret_file(wanted.directory, "cluster-secret")
        self._identity_file = state_directory.identity_file(wanted.directory)
        self._accounts: list[TrialAccount] = []
        self._supervisor = Supervisor(self._heard)
        self._complete = False

    async def start(self) -> None:
        """Start every part, write the ready file, and say how to begin. Raises :class:`CoronetError`."""
        self._forget_ready_file()
        write_private(
            self._wanted.directory / state_directory.ENVIRONMENT, msgspec.json.encode(self._settings()).decode()
        )
        try:
            await self._start_parts()
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        self._complete = True
        self._tell_others()
        self._screen.say(await self._greeting())

    async def stop(self) -> None:
        """End every part; the ready file goes first."""
        self._complete = False
        self._forget_ready_file()
        await self._supervisor.stop(last=_STOPPED_LAST)
        self._screen.say("Stopped. The same command continues it.")

    async def _start_parts(self) -> None:
        async with asyncio.TaskGroup() as group:
            if self._wanted.sample_feeds:
                group.create_task(self._add(self._sample_publisher()))
            prosody = group.create_task(self._screen.step("prosody", self._start_prosody()))
            await self._add(await self._redis.program())
            for name in self._worker_names():
                group.create_task(self._add(self._coronet(name, "worker")))
            await prosody
            group.create_task(self._add(self._console()))
            for name in self._bot_names():
                group.create_task(self._add(self._coronet(name, "bot")))

    async def _start_prosody(self) -> None:
        program = await self._prosody.program()
        self._accounts = await state_directory.trial_accounts(self._wanted.directory, self._prosody)
        await self._supervisor.add(program)

    async def _add(self, program: Program) -> None:
        await self._screen.step(program.name, self._supervisor.add(program))

    def _worker_names(self) -> list[str]:
        return [f"worker-{number}" for number in range(1, self._wanted.workers + 1)]

    def _bot_names(self) -> list[str]:
        return [f"bot-{number}" for number in range(1, self._wanted.bots + 1)]

    def _sample_publisher(self) -> Program:
        port = self._ports["sample publisher"]
        command = ["sample-publisher", "--port", str(port), "--every", str(SAMPLE_INTERVAL_S)]
        command += ["--directory", str(self._wanted.directory / "publisher")]
        return self._program("sample publisher", command, partial(ports.accepts, port), {})

    def _coronet(self, name: str, command: str, besides: Mapping[str, str] | None = None) -> Program:
        """Return a worker, the bot or the console; ``besides`` is what others are not told."""
        metrics_port = self._ports[name]
        told = {**self._settings(), **(besides or {}), "CORONET_METRICS_PORT": str(metrics_port)}
        return self._program(name, [command], partial(ports.has_started, metrics_port), told)

    def _console(self) -> Program:
        first = self._accounts[0]
        password_file = self._wanted.directory / "chat-password"
        write_private(password_file, first.password)
        chat = {
            "CORONET_CHAT_WEBSOCKET_URL": self._prosody.websocket_url,
            "CORONET_CHAT_JID": first.jid,
            "CORONET_CHAT_PASSWORD_FILE": str(password_file),
        }
        return self._coronet("console", "console", chat)

    def _program(
        self, name: str, command: list[str], answers: Callable[[], Awaitable[bool]], told: Mapping[str, str]
    ) -> Program:
        log = self._wanted.directory / "logs" / f"{name.replace(' ', '-')}.log"
        argv = (sys.executable, "-P", "-m", "service.cli", *command)  # -P: never a `service` of the current directory
        return Program(name, argv, log, answers, environment(os.environ, told))

    def _settings(self) -> dict[str, str]:
        """Return what every program is told, as environment variables; secrets as the names of their files."""
        told = {
            "CORONET_PRESET": "trial",
            "CORONET_REDIS_URL": self._redis.url,
            "CORONET_STORE_IDENTITY_FILE": str(self._identity_file),
            "CORONET_XMPP_LOGIN": "component",
            "CORONET_XMPP_JID": self._prosody.bot_jid,
            "CORONET_XMPP_SHARDS": " ".join(self._prosody.shards),
            "CORONET_XMPP_HOST": ports.LOOPBACK,
            "CORONET_XMPP_PORT": str(self._prosody.component_port),
            "CORONET_XMPP_PASSWORD_FILE": str(self._prosody.component_secret_file),
            "CORONET_UPLOAD_URL": self._prosody.http_url,
            "CORONET_CONSOLE_BIND": ports.LOOPBACK,
            "CORONET_CONSOLE_PORT": str(self._ports["console"]),
            "CORONET_CONSOLE_ADMIN_TOKEN_FILE": str(self._admin_token_file),
            "CORONET_CLUSTER_SECRET_FILE": str(self._cluster_secret_file),
            "CORONET_ALLOW_PRIVATE": str(self._wanted.allow_private),
        }
        if self._wanted.poll_interval_s is not None:
            told["CORONET_POLL_INTERVAL_S"] = str(self._wanted.poll_interval_s)
        return told

    def _ready(self) -> Ready:
        publisher = f"http://{ports.LOOPBACK}:{self._ports['sample publisher']}"
        return Ready(
            redis_url=self._redis.url,
            console_url=f"http://{ports.LOOPBACK}:{self._ports['console']}",
            admin_token=self._admin_token_file.read_text(encoding="ascii"),
            xmpp=Xmpp(
                host=ports.LOOPBACK,
                port=self._prosody.c2s_port,
                domain=self._prosody.jid_domain,
                bot_jid=self._prosody.bot_jid,
                shards=list(self._prosody.shards),
                ca_file=str(self._prosody.ca_file),
                accounts=self._accounts,
            ),
            processes=processes(self._supervisor.pids),
            sample_feed_url=f"{publisher}/feed.xml" if self._wanted.sample_feeds else None,
        )

    async def _greeting(self) -> str:
        # The web server's libraries take a third of a second to load, which no program waits for here.
        from service.console.auth.login import setup_link  # noqa: PLC0415 - see above

        try:
            async with opened(load(self._settings())) as store:
                link = await setup_link(store, self._ready().console_url)
        except StoreIdentityMismatch as error:
            return f"\n{error}\nThis one is reached with: coronet admin --state {self._wanted.directory} accept-store\n"
        return greeting(self._ready(), self._wanted.directory, link, loopback_open=self._wanted.allow_private)

    def _heard(self, line: str) -> None:
        self._screen.say(line)
        self._tell_others()

    def _tell_others(self) -> None:
        if self._complete and self._wanted.ready_file is not None:
            try:
                write_ready(self._wanted.ready_file, self._ready())
            except OSError as error:
                self._screen.say(f"The ready file cannot be written: {error}")

    def _forget_ready_file(self) -> None:
        if self._wanted.ready_file is not None:
            self._wanted.ready_file.unlink(missing_ok=True)


def greeting(ready: Ready, state: Path, setup_link: str | None, *, loopback_open: bool) -> str:
    """Return what a person needs for the first minute, ready to print."""
    first = ready.xmpp.accounts[0]
    server = f"server {ready.xmpp.host} port {ready.xmpp.port}"
    lines = [
        "",
        "Coronet is running.",
        "",
        f"  Console   {setup_link or ready.console_url}",
        *(["            This link works once: it makes the console's first admin."] if setup_link else []),
        f"  Bot       {ready.xmpp.bot_jid}",
        *([f"            and {', '.join(ready.xmpp.shards)}"] if ready.xmpp.shards else []),
        f"  Account   {first.jid}   password  {first.password}",
        f"            and {len(ready.xmpp.accounts) - 1} more in {state / 'accounts.json'}",
        f"  Server    {ready.xmpp.host}, port {ready.xmpp.port}, STARTTLS. It made its certificate itself: trust it",
        f"            when asked, or give your client {ready.xmpp.ca_file}",
        "",
        "  With any XMPP client; in Profanity:",
        f"    /connect {first.jid} {server} tls trust",
        f"    /msg {ready.xmpp.bot_jid} {f'subscribe {ready.sample_feed_url}' if ready.sample_feed_url else 'help'}",
    ]
    if ready.sample_feed_url:
        lines += ["", f"  Sample    {ready.sample_feed_url} has a new entry every half minute."]
    if loopback_open:
        lines += [
            "",
            "  Loopback is open: whoever may talk to the bot can make it fetch from this machine's",
            "  own ports. That is for trials only; without --allow-private it is closed.",
        ]
    return "\n".join([*lines, "", "Ctrl-C ends everything; the same command continues it.", ""])
