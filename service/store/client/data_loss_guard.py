"""The guard against data loss: it stops a process from using a store that has lost data.

The store contains the id of its fleet, and a counter that processes increment every ``COUNTER_INTERVAL_MS`` ms. These
two values are the store's *identity*. Each process remembers the last identity that it trusted. The processes on one
machine share the last trusted identity in a file.

A process considers the store's data lost in each of these cases:

- The store has no fleet id, although a process on this machine has seen one.
- The store has the id of another fleet.
- The store's counter is more than ``MAX_COUNTER_LAG`` lower than a value that a process on this machine has seen. The
  margin is needed because a power cut may lose a second or two of writes with ``appendfsync everysec``.

A process stops using such a store until the operator accepts it (``coronet admin accept-store``) or restores the data.

The identity is read on three occasions:

- on each new connection, because a restart of Redis closes all connections
- every few seconds, to detect ``FLUSHALL`` (:class:`service.store.client.data_loss_monitor.DataLossMonitor`)
- before an empty list of subscriptions is returned for a user

In a Redis Cluster, a single node stores the identity. The guard therefore detects only the loss of this node's data.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
from redis import exceptions
from redis.asyncio.connection import AbstractConnection

from service.errors import StoreIdentityMismatch
from service.private_files import lock_file, write_private
from service.settings import SettingsInvalid
from service.store.client import keys

COUNTER_INTERVAL_MS: Final = 2_000
MAX_COUNTER_LAG: Final = 2
"""Number of counter increments that may be missing from a trusted store.

A power cut can lose that many if Redis writes to disk once a second.
"""

SCHEMA_VERSION: Final = 1
"""Version of the format in which this program stores data; docs/developers.md states when it changes."""
NEEDED_SCHEMA_VERSION: Final = 1
"""Lowest format version that another program must support in order to use the data that this program stores."""

EMPTIED: Final = "emptied"
OTHER_FLEET: Final = "other fleet"
BEHIND: Final = "behind"
RESTORING: Final = "restoring"
NEWER: Final = "newer"

_WHAT_TO_DO: Final = (
    "Nothing is served, so that nobody is told that their subscriptions are gone. Bring the right data back, or go on "
    "with what is there: coronet admin accept-store, with the console's console_admin_token."
)
_SENTENCES: Final = {
    EMPTIED: "The store is empty, although this fleet has used it: Redis lost its data, or runs over another folder.",
    OTHER_FLEET: "The store belongs to another fleet: redis_url leads to another Redis, or its data was replaced.",
    BEHIND: "The store is older than it was: Redis lost its latest data, or an older copy was restored.",
    RESTORING: (
        "A backup is being restored into the store, or that was interrupted: then run coronet restore --replace again."
    ),
}


class StoreIdentity(msgspec.Struct, frozen=True):
    """What the store reports about itself, so that processes can detect the loss of data.

    - ``fleet``: id of the fleet that uses the store; "" if the store has no fleet id.
    - ``counter``: value of the counter that processes increment while they use the store.
    - ``grown_ms``: when the counter was last incremented (Unix ms, Redis's clock).
    - ``accepted_ms``: when the operator last accepted the store (Unix ms, Redis's clock).
    - ``refused``: why a process has marked the store as refused, which stops all processes from using it; "" if the
      store is not marked.
    - ``schema``: version of the format of the stored data; 0 if unknown.
    - ``needs``: lowest version of the format that a process must support in order to use the data; 0 if unknown.
    """

    fleet: str = ""
    counter: int = 0
    grown_ms: int = 0
    accepted_ms: int = 0
    refused: str = ""
    schema: int = 0
    needs: int = 0


READ_IDENTITY: Final = ("HMGET", keys.STORE_IDENTITY, *StoreIdentity.__struct_fields__)


class TrustedIdentity(msgspec.Struct, frozen=True):
    """The store's fleet id and counter as they were when the store was last trusted.

    A file on each machine contains them as JSON.

    - ``fleet``: id of the fleet; "" if no store was trusted yet.
    - ``counter``: value of the store's counter; 0 if the fleet id is new and the store has not been used yet.
    - ``at_ms``: when the store was trusted (Unix ms, Redis's clock).
    """

    fleet: str = ""
    counter: int = 0
    at_ms: int = 0

    @property
    def in_use(self) -> bool:
        """Whether the store has been used for so long that a power cut can no longer erase its fleet id."""
        # The id is written before the counter is incremented, and a power cut loses at most MAX_COUNTER_LAG increments.
        return self.counter > MAX_COUNTER_LAG

    def is_newer_than(self, other: "TrustedIdentity") -> bool:
        """Whether this identity was trusted later than ``other``, or at the same time with a higher counter."""
        return (self.at_ms, self.counter) > (other.at_ms, other.counter)


def parse_identity(reply: Sequence[Any]) -> StoreIdentity:
    """Parse the reply to ``READ_IDENTITY``, the command that reads the store's identity."""
    fields = zip(StoreIdentity.__struct_fields__, reply, strict=True)
    texts = {name: text.decode(errors="replace") for name, text in fields if text}
    return msgspec.convert(texts, StoreIdentity, strict=False)


def refusal_reason(found: StoreIdentity, seen: TrustedIdentity) -> str:
    """Return why the store must not be used; "" if it may be used.

    ``found`` is the store's present identity, and ``seen`` is the last trusted identity.
    """
    if found.needs > SCHEMA_VERSION:
        return NEWER
    if found.refused:
        return found.refused
    if not found.fleet:
        return EMPTIED if seen.in_use else ""
    if seen.fleet and found.fleet != seen.fleet:
        return OTHER_FLEET
    is_behind = found.counter < seen.counter - MAX_COUNTER_LAG
    return BEHIND if is_behind and found.accepted_ms <= seen.at_ms else ""


class IdentityFile:
    """The file that contains the last trusted identity of the store. All processes on one machine share it."""

    def __init__(self, path: Path) -> None:
        """Create an accessor for the identity file at ``path``. The file need not exist."""
        self.path = path
        self._read_version: tuple[int, int] | None = None
        """The inode and modification time of the file that was read last."""
        self._identity = TrustedIdentity()

    def read(self) -> TrustedIdentity:
        """Return the identity in the file; an empty identity if the file does not exist.

        The file is read only if it has been replaced since it was read last. Raises :class:`SettingsInvalid` if it
        cannot be read.
        """
        try:
            status = self.path.stat()
            version = status.st_ino, status.st_mtime_ns
            if version != self._read_version:
                self._identity = msgspec.json.decode(self.path.read_bytes(), type=TrustedIdentity)
                self._read_version = version
        except FileNotFoundError:
            return TrustedIdentity()
        except (OSError, msgspec.MsgspecError) as error:
            raise SettingsInvalid(
                f"The store's identity file {self.path} cannot be read ({error}). Restore it, or delete it: a new one "
                "is made for the store that is found."
            ) from error
        return self._identity

    def write(self, seen: TrustedIdentity) -> None:
        """Write an identity to the file, unless the identity in the file is at least as new.

        Raises ``OSError`` if the file cannot be written.
        """
        with lock_file(self.path):
            held = TrustedIdentity()
            with suppress(SettingsInvalid):
                held = self.read()
            if seen.is_newer_than(held):
                write_private(self.path, msgspec.json.encode(seen).decode())


class DataLossGuard:
    """Decides whether this process may use the store. It checks the store on each new connection.

    - ``file``: the file with the last trusted identity; None if there is none.
    - ``trusted``: the store's fleet id and counter when this process last trusted the store.
    - ``current``: the store's identity when it was last read.
    - ``reason``: why the store must not be used; "" if it may be used.
    """

    def __init__(self, file: str) -> None:
        """Load the last trusted identity from the file at the path ``file``; "" means that there is no file.

        Raises :class:`SettingsInvalid` if the file cannot be read.
        """
        self.file = IdentityFile(Path(file)) if file else None
        self.trusted = self.file.read() if self.file else TrustedIdentity()
        self.current = StoreIdentity()
        self.reason = ""
        self._accepted_before_ms = 0

    def check(self) -> None:
        """Raise :class:`StoreIdentityMismatch` if the store must not be used."""
        if self.reason:
            raise StoreIdentityMismatch(self.explanation)

    @property
    def explanation(self) -> str:
        """Sentences that tell the operator why the store must not be used, and what to do about it."""
        if self.reason == NEWER:
            return (
                f"The store's data needs a newer version of Coronet (data {self.current.needs}; this program knows "
                f"{SCHEMA_VERSION}). Install the version that the other programs have."
            )
        return f"{_SENTENCES.get(self.reason, self.reason)} {_WHAT_TO_DO}"

    def reload(self) -> TrustedIdentity:
        """Read the identity file again, and return the newest trusted identity.

        Another process may have written a newer identity to the file.
        """
        if self.file is not None:
            with suppress(SettingsInvalid):
                kept = self.file.read()
                if kept.is_newer_than(self.trusted):
                    self.trusted = kept
        return self.trusted

    def evaluate(self, found: StoreIdentity, seen: TrustedIdentity) -> None:
        """Decide whether the store may be used, and record the decision in this guard.

        - ``found``: the identity that the store has reported.
        - ``seen``: the identity that this process trusted when it requested ``found``.
        """
        # A later trusted identity would be wrong here: if another process has incremented the counter since the query,
        # the found one would look outdated.
        self.current = found
        reason = refusal_reason(found, seen)
        if reason and (reason == NEWER or not (self.reason and self._is_accepted(found))):
            if not self.reason:
                self._accepted_before_ms = max(found.accepted_ms, seen.at_ms)
            self.reason = reason
            return
        self.reason = ""
        at_ms = max(found.grown_ms, found.accepted_ms)
        if found.fleet and at_ms >= self.trusted.at_ms:
            known, counter = self.trusted, found.counter
            if known.fleet == found.fleet and found.accepted_ms <= known.at_ms:
                counter = max(counter, known.counter)
            self.trusted = TrustedIdentity(found.fleet, counter, at_ms)

    def _is_accepted(self, found: StoreIdentity) -> bool:
        """Return whether the operator has accepted the store after this process stopped using it."""
        return bool(found.fleet) and not found.refused and found.accepted_ms > self._accepted_before_ms

    async def check_connection(self, connection: AbstractConnection) -> None:
        """Prepare a new connection for use, and check the store's identity over it.

        Raises :class:`StoreIdentityMismatch` if the store must not be used.
        """
        await connection.on_connect()
        seen = self.reload()
        await connection.send_command(*READ_IDENTITY)
        try:
            reply = await connection.read_response()
        except (exceptions.MovedError, exceptions.AskError, exceptions.ClusterDownError, exceptions.TryAgainError):
            return  # another node of the cluster has the identity
        self.evaluate(parse_identity(reply), seen)
        if self.reason:
            await connection.disconnect()
        self.check()
