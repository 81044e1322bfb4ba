"""The ready file: what other programs need to know of a running ``coronet up``."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from service.files import write_private
from service.stack.state import TrialAccount


class Xmpp(msgspec.Struct, frozen=True):
    """Where and as whom to chat; ``ca_file`` is the certificate that clients are to trust.

    ``shards`` are the bot's other addresses.
    """

    host: str
    port: int
    domain: str
    bot_jid: str
    shards: list[str]
    ca_file: str
    accounts: list[TrialAccount]


class Processes(msgspec.Struct, frozen=True):
    """Process ids, each also the id of its process group."""

    redis: int
    prosody: int
    bot: list[int]
    workers: list[int]
    console: int


class Ready(msgspec.Struct, frozen=True):
    """The file's content. ``sample_feed_url`` is None without sample feeds."""

    redis_url: str
    console_url: str
    admin_token: str
    xmpp: Xmpp
    processes: Processes
    sample_feed_url: str | None


def processes(pids: Mapping[str, int]) -> Processes:
    """Sort the supervisor's children by what they are."""
    return Processes(
        redis=pids["redis"],
        prosody=pids["prosody"],
        bot=[pid for name, pid in sorted(pids.items()) if name.startswith("bot-")],
        workers=[pid for name, pid in sorted(pids.items()) if name.startswith("worker-")],
        console=pids["console"],
    )


def write_ready(path: Path, ready: Ready) -> None:
    """Put the file in place atomically, with mode 0600: it holds passwords."""
    write_private(path, msgspec.json.format(msgspec.json.encode(ready), indent=2).decode() + "\n")
