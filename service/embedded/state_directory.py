"""The state directory of ``coronet up``: held by one process; what is made only once; and the ready file.

The ready file says what other programs need to know of a running ``coronet up``.
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from service.embedded.prosody import PrivateProsody
from service.errors import UserError
from service.files import write_private

ENVIRONMENT = "environment.json"
"""In a state directory: the settings that its programs were last started with, as environment variables."""

TRIAL_USERS = ("alice", "bob", "carol", "dave", "erin")


class TrialAccount(msgspec.Struct, frozen=True):
    """An XMPP account that is ready to use."""

    jid: str
    password: str


@contextlib.contextmanager
def held(directory: Path) -> Iterator[None]:
    """Hold the directory for this process alone; it is made if it is missing.

    The kernel lets go of it when the process dies, however it dies. Raises :class:`UserError`
    when another process holds it, or it cannot be made.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise UserError(f"{directory} cannot be the state directory: {error}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 20).decode(errors="replace").strip() or "unknown"
            raise UserError(
                f"{directory} is in use by another `coronet up` (process {holder}): "
                "stop that one, or name another directory with --state."
            ) from None
        os.truncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(lock)


def told_environment(directory: Path) -> dict[str, str]:
    """Return the settings that this directory's programs were last started with.

    Raises :class:`UserError` when there were none.
    """
    try:
        return msgspec.json.decode((directory / ENVIRONMENT).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError) as error:
        raise UserError(f"{directory} is no state directory of `coronet up` ({error}).") from error


def identity_file(directory: Path) -> Path:
    """Return the file with the fleet's id, which is made up at the first call; programs keep there what they saw."""
    path = directory / "store-identity.json"
    if not path.exists():
        write_private(path, msgspec.json.encode({"fleet": secrets.token_hex(16)}).decode())
    return path


async def trial_accounts(directory: Path, prosody: PrivateProsody) -> list[TrialAccount]:
    """Return accounts for trying things out; registered at the first call, whose file is the sign that all are."""
    path = directory / "accounts.json"
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=list[TrialAccount])
    accounts = []
    for username in TRIAL_USERS:
        password = secrets.token_urlsafe(9)
        accounts.append(TrialAccount(await prosody.register(username, password), password))
    write_private(path, msgspec.json.encode(accounts).decode())
    return accounts


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
