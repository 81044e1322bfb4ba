"""``coronet up``: starts all programs on one machine in parallel, and supervises them until it is stopped.

The terminal shows the progress of the start, and then a greeting with first steps.
"""

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

from service.asyncio_tasks import run_until_stopped
from service.embedded import ports, state_directory
from service.embedded.child_process import Program, child_environment
from service.embedded.private_prosody import PrivateProsody
from service.embedded.private_redis import PrivateRedis
from service.embedded.single_process_fleet import SingleProcessFleet
from service.embedded.state_directory import ProcessIds, ReadyFile, TrialAccount, XmppDetails, write_ready
from service.embedded.supervisor import Supervisor
from service.errors import StoreIdentityMismatch
from service.private_files import ensure_secret_file, write_private
from service.settings import load
from service.store import opened


class ProgressDisplay:
    """The progress shown on the terminal: a spinner for programs that are starting, and a line for each ready one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("")
        self._pending: list[str] = []

    def print_line(self, text: str) -> None:
        """Print ``text`` without interpreting markup and without wrapping lines, so that links stay intact."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    async def show_start(self, name: str, start: Awaitable[None]) -> None:
        """Await ``start`` while showing that the program ``name`` is starting; then show how long it took."""
        start_s = time.monotonic()
        self._pending.append(name)
        self._update_spinner()
        try:
            await start
        finally:
            self._pending.remove(name)
            self._update_spinner()
        self.print_line(f"  {name} is ready ({time.monotonic() - start_s:.1f} s)")

    def _update_spinner(self) -> None:
        if self._pending:
            self._status.update(f"Starting {', '.join(self._pending)} …")
            self._status.start()
        else:
            self._status.stop()


def greeting(ready: ReadyFile, state: Path, setup_link: str | None, *, allow_private: bool) -> str:
    """Return the text to print after the start: addresses, accounts and first steps.

    ``setup_link`` is the link for creating the console's first account; None if an account already exists.
    """
    first = ready.xmpp.accounts[0]
    server = f"server {ready.xmpp.host} port {ready.xmpp.port}"
    lines = [
        "",
        "Coronet is running.",
        "",
        f"  Console   {setup_link or ready.console_url}",
        *(["            This link works once, to create the console's first admin account."] if setup_link else []),
        f"  Bot       {ready.xmpp.bot_jid}",
        *([f"            and {', '.join(ready.xmpp.shards)}"] if ready.xmpp.shards else []),
        f"  Account   {first.jid}   password  {first.password}",
        f"            and {len(ready.xmpp.accounts) - 1} more in {state / 'accounts.json'}",
        f"  Server    {ready.xmpp.host}, port {ready.xmpp.port}, STARTTLS, with a self-signed certificate: trust it",
        f"            when your client asks, or import {ready.xmpp.ca_file}",
        "",
        "  With any XMPP client; in Profanity:",
        f"    /connect {first.jid} {server} tls trust",
        f"    /msg {ready.xmpp.bot_jid} {f'subscribe {ready.sample_feed_url}' if ready.sample_feed_url else 'help'}",
    ]
    if ready.sample_feed_url:
        lines += ["", f"  Sample    {ready.sample_feed_url} publishes an entry every 30 seconds."]
    if allow_private:
        lines += [
            "",
            "  Feeds on loopback are allowed: anyone who can use the bot can make workers send requests",
            "  to services on this machine. Only for trials; omit --allow-private to forbid it.",
        ]
    return "\n".join([*lines, "", "Press Ctrl-C to stop; run the same command to continue.", ""])


SAMPLE_INTERVAL_S: Final = 30
_STOPPED_LAST: Final = frozenset({"redis", "prosody"})


@dataclass(frozen=True)
class UpOptions:
    """The options of ``coronet up``.

    If a port is 0, a free port is chosen. It is reused at later starts if it is still free.
    """

    directory: Path
    workers: int
    bots: int
    console_port: int
    xmpp_port: int
    sample_feeds: bool
    allow_private: bool
    poll_interval_s: float | None
    small: bool
    """Whether this process runs one worker, the bot and the console itself, to save memory."""
    ready_file: Path | None


async def up(options: UpOptions, console: Console) -> None:
    """Run all programs until SIGTERM or Ctrl-C, then stop all child processes within 10 seconds.

    Raises :class:`CoronetError` if a program cannot be started, or if the state directory is in use.
    """
    with state_directory.lock_directory(options.directory):
        await run_until_stopped(_run(LocalFleet(options, ProgressDisplay(console))))


async def _run(fleet: "LocalFleet") -> None:
    try:
        await fleet.start()
        await fleet.wait()
    finally:
        await fleet.stop()


class LocalFleet:
    """All programs on one machine: Redis, Prosody, workers, bots, the console and the sample publisher."""

    def __init__(self, options: UpOptions, display: ProgressDisplay) -> None:
        self._options = options
        self._display = display
        self._ports = ports.choose_ports(
            options.directory / "ports.json",
            {"console": options.console_port, "xmpp": options.xmpp_port}
            | dict.fromkeys(["component", "sample publisher", *self._bot_names(), *self._worker_names()], 0),
        )
        self._redis = PrivateRedis(options.directory / "redis")
        self._prosody = PrivateProsody(
            options.directory / "prosody", self._ports["xmpp"], self._ports["component"], shards=options.bots - 1
        )
        self._admin_token_file = ensure_secret_file(options.directory, "admin-token")
        self._cluster_secret_file = ensure_secret_file(options.directory, "cluster-secret")
        self._credentials_key_file = ensure_secret_file(options.directory, "credentials-key")
        self._identity_file = state_directory.ensure_identity_file(options.directory)
        self._accounts: list[TrialAccount] = []
        self._supervisor = Supervisor(self._on_program_event)
        self._in_process = SingleProcessFleet(options.directory / "logs" / "coronet.log") if options.small else None
        self._is_complete = False

    async def start(self) -> None:
        """Start all programs, write the ready file, and print instructions.

        Raises :class:`CoronetError` if a program cannot be started.
        """
        self._remove_ready_file()
        write_private(
            self._options.directory / state_directory.ENVIRONMENT_FILE, msgspec.json.encode(self._settings()).decode()
        )
        try:
            await self._start_programs()
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        self._is_complete = True
        self._update_ready_file()
        self._display.print_line(await self._greeting())

    async def wait(self) -> None:
        """Wait until cancelled; meanwhile, the supervisor restarts child processes that exit.

        With the option ``small``, some programs run in this process instead of child processes. Raises
        :class:`OperationalError` if one of these programs ends by itself.
        """
        if self._in_process is not None:
            await self._in_process.wait()
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Remove the ready file, then stop all programs."""
        self._is_complete = False
        self._remove_ready_file()
        if self._in_process is not None:
            await self._in_process.stop()
        await self._supervisor.stop(last=_STOPPED_LAST)
        self._display.print_line("Stopped. Run the same command to continue.")

    async def _start_programs(self) -> None:
        async with asyncio.TaskGroup() as group:
            if self._options.sample_feeds:
                group.create_task(self._add(self._sample_publisher()))
            prosody = group.create_task(self._display.show_start("prosody", self._start_prosody()))
            loading = group.create_task(self._in_process.load()) if self._in_process is not None else None
            await self._add(await self._redis.program())
            if self._in_process is not None and loading is not None:
                await asyncio.gather(prosody, loading)
                settings = load(child_environment(os.environ, {**self._settings(), **self._chat_settings()}))
                await self._display.show_start("coronet", self._in_process.start(settings))
                return
            for name in self._worker_names():
                group.create_task(self._add(self._coronet_program(name, "worker")))
            await prosody
            group.create_task(self._add(self._coronet_program("console", "console", self._chat_settings())))
            for name in self._bot_names():
                group.create_task(self._add(self._coronet_program(name, "bot")))

    async def _start_prosody(self) -> None:
        program = await self._prosody.program()
        self._accounts = await state_directory.ensure_trial_accounts(self._options.directory, self._prosody)
        await self._supervisor.add(program)

    async def _add(self, program: Program) -> None:
        await self._display.show_start(program.name, self._supervisor.add(program))

    def _worker_names(self) -> list[str]:
        return [f"worker-{number}" for number in range(1, self._options.workers + 1)]

    def _bot_names(self) -> list[str]:
        return [f"bot-{number}" for number in range(1, self._options.bots + 1)]

    def _sample_publisher(self) -> Program:
        port = self._ports["sample publisher"]
        command = ["sample-publisher", "--port", str(port), "--every", str(SAMPLE_INTERVAL_S)]
        command += ["--directory", str(self._options.directory / "publisher")]
        return self._program("sample publisher", command, partial(ports.is_listening, port), {})

    def _coronet_program(self, name: str, command: str, extra: Mapping[str, str] | None = None) -> Program:
        """Return the program that runs a worker, a bot or the console.

        - ``name``: the name of the program.
        - ``command``: the subcommand of ``coronet``.
        - ``extra``: environment variables for this program only.
        """
        metrics_port = self._ports[name]
        environ = {**self._settings(), **(extra or {}), "CORONET_METRICS_PORT": str(metrics_port)}
        return self._program(name, [command], partial(ports.has_started, metrics_port), environ)

    def _chat_settings(self) -> dict[str, str]:
        """Return the settings of the console's Chat page, as environment variables.

        The page logs in with the first trial account, whose password is passed as a file.
        """
        first = self._accounts[0]
        password_file = self._options.directory / "chat-password"
        write_private(password_file, first.password)
        return {
            "CORONET_CHAT_WEBSOCKET_URL": self._prosody.websocket_url,
            "CORONET_CHAT_JID": first.jid,
            "CORONET_CHAT_PASSWORD_FILE": str(password_file),
        }

    def _program(
        self, name: str, command: list[str], is_ready: Callable[[], Awaitable[bool]], environ: Mapping[str, str]
    ) -> Program:
        log = self._options.directory / "logs" / f"{name.replace(' ', '-')}.log"
        argv = (sys.executable, "-P", "-m", "service.cli", *command)  # -P: not the current directory's `service`
        return Program(name, argv, log, is_ready, child_environment(os.environ, environ))

    def _settings(self) -> dict[str, str]:
        """Return the settings that all programs share, as environment variables. Secrets are passed as files."""
        environ = {
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
            "CORONET_CREDENTIALS_KEY_FILE": str(self._credentials_key_file),
            "CORONET_ALLOW_PRIVATE": str(self._options.allow_private),
        }
        if self._options.poll_interval_s is not None:
            environ["CORONET_POLL_INTERVAL_S"] = str(self._options.poll_interval_s)
        return environ

    def _ready(self) -> ReadyFile:
        pids, own = self._supervisor.pids, os.getpid()  # with --small, this process runs all but Redis and Prosody
        publisher = f"http://{ports.LOOPBACK}:{self._ports['sample publisher']}"
        return ReadyFile(
            redis_url=self._redis.url,
            console_url=f"http://{ports.LOOPBACK}:{self._ports['console']}",
            admin_token=self._admin_token_file.read_text(encoding="ascii"),
            xmpp=XmppDetails(
                host=ports.LOOPBACK,
                port=self._prosody.c2s_port,
                domain=self._prosody.jid_domain,
                bot_jid=self._prosody.bot_jid,
                shards=list(self._prosody.shards),
                ca_file=str(self._prosody.ca_file),
                accounts=self._accounts,
            ),
            processes=ProcessIds(
                redis=pids["redis"],
                prosody=pids["prosody"],
                bot=[pids.get(name, own) for name in self._bot_names()],
                workers=[pids.get(name, own) for name in self._worker_names()],
                console=pids.get("console", own),
            ),
            sample_feed_url=f"{publisher}/feed.xml" if self._options.sample_feeds else None,
        )

    async def _greeting(self) -> str:
        # Imported late: loading the web server's libraries takes a third of a second.
        from service.console.auth.first_account import create_setup_link  # noqa: PLC0415 - see above

        try:
            async with opened(load(self._settings())) as store:
                link = await create_setup_link(store, self._ready().console_url)
        except StoreIdentityMismatch as error:
            return f"\n{error}\nTo accept it: coronet admin --state {self._options.directory} accept-store\n"
        return greeting(self._ready(), self._options.directory, link, allow_private=self._options.allow_private)

    def _on_program_event(self, line: str) -> None:
        self._display.print_line(line)
        self._update_ready_file()

    def _update_ready_file(self) -> None:
        if self._is_complete and self._options.ready_file is not None:
            try:
                write_ready(self._options.ready_file, self._ready())
            except OSError as error:
                self._display.print_line(f"The ready file cannot be written: {error}")

    def _remove_ready_file(self) -> None:
        if self._options.ready_file is not None:
            self._options.ready_file.unlink(missing_ok=True)
