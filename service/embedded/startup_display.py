"""The output of ``coronet up`` in the terminal: the progress of the start, and the greeting."""

import time
from collections.abc import Awaitable
from pathlib import Path

from rich.console import Console

from service.embedded.state_directory import ReadyFile


class ProgressDisplay:
    """The progress shown on the terminal: a spinner with the starting programs, and a line for each ready program."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("")
        self._pending: list[str] = []

    def print_line(self, text: str) -> None:
        """Print text without interpreting markup and without wrapping lines, so that links stay intact."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    async def show_start(self, name: str, start: Awaitable[None]) -> None:
        """Await ``start`` while showing that the program ``name`` is starting, and then show how long it took."""
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
    """Return the text printed after the start: addresses, accounts and first steps.

    ``setup_link`` is the link that creates the console's first account; None if an account exists already.
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
