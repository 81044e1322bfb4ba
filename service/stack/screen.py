"""What ``coronet up`` shows: a spinner on a terminal, plain lines elsewhere, and how to begin."""

import time
from collections.abc import Awaitable
from pathlib import Path

from rich.console import Console
from rich.status import Status

from service.stack.ready import Ready


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
