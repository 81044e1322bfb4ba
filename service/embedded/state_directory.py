"""The state directory of ``coronet up``: its lock, the files created at the first start, and the ready file.

The ready file tells other programs how to reach a running ``coronet up``.
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import msgspec

from service.embedded.private_prosody import PrivateProsody
from service.errors import UserError
from service.private_files import write_private

ENVIRONMENT_FILE = "environment.json"
"""Name of the file with the settings of the last start, as environment variables."""

TRIAL_USERS = ("alice", "bob", "carol", "dave", "erin")


class TrialAccount(msgspec.Struct, frozen=True):
    """An XMPP account with which users can try Coronet."""

    jid: str
    password: str


@contextlib.contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Lock the directory for this process while the context lasts; create the directory if it is missing.

    The kernel also releases the lock when the process dies. Raises :class:`UserError` if another process holds the
    lock, or if the directory cannot be created.
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
                "stop it, or choose another directory with --state."
            ) from None
        os.truncate(lock, 0)
        os.write(lock, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(lock)


def is_locked(directory: Path) -> bool:
    """Return whether a running ``coronet up`` uses ``directory`` as its state directory."""
    try:
        with lock_directory(directory):
            return False
    except UserError:
        return True


def load_environment(directory: Path) -> dict[str, str]:
    """Return the settings of the latest run of ``coronet up`` with this state directory, as environment variables.

    Raises :class:`UserError` if ``coronet up`` has never used this directory.
    """
    try:
        return msgspec.json.decode((directory / ENVIRONMENT_FILE).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError) as error:
        raise UserError(f"{directory} is no state directory of `coronet up` ({error}).") from error


def ensure_identity_file(directory: Path) -> Path:
    """Return the path of the store identity file, which names the fleet to which the store belongs.

    The file is created with a random fleet id if it is missing.
    """
    path = directory / "store-identity.json"
    if not path.exists():
        write_private(path, msgspec.json.encode({"fleet": secrets.token_hex(16)}).decode())
    return path


async def ensure_trial_accounts(directory: Path, prosody: PrivateProsody) -> list[TrialAccount]:
    """Return the trial accounts, after registering them with the XMPP server if this has not been done yet.

    Once all accounts have been registered, they are written to a file. If the file exists, the accounts are read from
    it.
    """
    path = directory / "accounts.json"
    if path.exists():
        return msgspec.json.decode(path.read_bytes(), type=list[TrialAccount])
    accounts = []
    for username in TRIAL_USERS:
        password = secrets.token_urlsafe(9)
        accounts.append(TrialAccount(await prosody.register(username, password), password))
    write_private(path, msgspec.json.encode(accounts).decode())
    return accounts


class XmppDetails(msgspec.Struct, frozen=True):
    """How to reach the XMPP server, and the accounts for trying it.

    - ``host``, ``port``: the address at which clients connect.
    - ``domain``: the XMPP domain of the accounts.
    - ``bot_jid``: the address of the bot.
    - ``shards``: the additional addresses of the bot.
    - ``ca_file``: the file with the certificate that clients must trust.
    - ``accounts``: the trial accounts.
    """

    host: str
    port: int
    domain: str
    bot_jid: str
    shards: list[str]
    ca_file: str
    accounts: list[TrialAccount]


class ProcessIds(msgspec.Struct, frozen=True):
    """The process ids of the programs; each is also the id of the program's process group."""

    redis: int
    prosody: int
    bot: list[int]
    workers: list[int]
    console: int


class ReadyFile(msgspec.Struct, frozen=True):
    """The content of the ready file, which tells other programs how to reach a running ``coronet up``.

    ``sample_feed_url`` is None if there is no sample publisher.
    """

    redis_url: str
    console_url: str
    admin_token: str
    xmpp: XmppDetails
    processes: ProcessIds
    sample_feed_url: str | None


def write_ready(path: Path, ready: ReadyFile) -> None:
    """Write the ready file atomically. It gets the mode 0600, because it contains passwords."""
    write_private(path, msgspec.json.format(msgspec.json.encode(ready), indent=2).decode() + "\n")
