"""The guard against lost data: it refuses to use a store that has lost data.

The store holds the id of its fleet and a counter, which processes increment every ``COUNTER_INTERVAL_MS`` ms. Both
together are the store's *identity*. Each process remembers the last identity that it trusted. The processes of a
machine share it in a file.

The store has lost data in each of these cases:

- It has no fleet id, although a process has seen one.
- It has the id of another fleet.
- Its counter is lower than a value that a process has seen, by more than ``MAX_COUNTER_LAG``. The margin exists because
  a power cut may lose a second or two of writes with ``appendfsync everysec``.

A process stops using such a store until the operator accepts it (``coronet admin accept-store``) or restores the data.

The identity is read at three occasions:

- on each new connection, because a Redis that restarts drops all connections
- every few seconds, to detect ``FLUSHALL`` (:class:`service.store.client.data_loss_monitor.DataLossMonitor`)
- before an empty list of subscriptions is returned for a user

In a Redis Cluster, one node holds the identity. Only the loss of this node's data is detected.
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
"""Version of the stored data that this program writes; docs/developers.md states when it changes."""
NEEDED_SCHEMA_VERSION: Final = 1
"""Lowest version of the data format that a program must support to use the data that this program writes."""

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
    """What the store reports about itself, from which a process recognizes that data was lost.

    - ``fleet``: id of the fleet that uses the store; "" if it has none.
    - ``counter``: counter that is incremented while processes use the store.
    - ``grown_ms``: when the counter was last incremented (Unix ms, Redis's clock).
    - ``accepted_ms``: when the operator last accepted the store (Unix ms, Redis's clock).
    - ``refused``: reason for which a process has refused the store, so that no process uses it; "" if none has.
    - ``schema``: version of the format of the stored data; 0 if unknown.
    - ``needs``: lowest format version that a program must support to use the data; 0 if unknown.
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
    """The store's fleet id and counter as this machine trusted them last. A file contains them as JSON.

    - ``fleet``: id of the fleet; "" if no store was trusted yet.
    - ``counter``: value of the store's counter; 0 if the fleet's id is new and the store has not been used yet.
    - ``at_ms``: when the store was trusted (Unix ms, Redis's clock).
    """

    fleet: str = ""
    counter: int = 0
    at_ms: int = 0

    @property
    def in_use(self) -> bool:
        """Whether the store was used so long that a power cut cannot have lost the fleet's id."""
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
    """Return the reason why a store must not be used; "" if it may be used.

    ``found`` is the store's identity, and ``seen`` is the identity that was trusted last.
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
    """The file with the last trusted identity, which the processes of one machine share."""

    def __init__(self, path: Path) -> None:
        """Create an accessor for the identity file at ``path``, which need not exist."""
        self.path = path

    def read(self) -> TrustedIdentity:
        """Return the identity in the file; an empty one if there is no file.

        Raises :class:`SettingsInvalid` if the file cannot be read.
        """
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=TrustedIdentity)
        except FileNotFoundError:
            return TrustedIdentity()
        except (OSError, msgspec.MsgspecError) as error:
            raise SettingsInvalid(
                f"The store's identity file {self.path} cannot be read ({error}). Restore it, or delete it: a new one "
                "is made for the store that is found."
            ) from error

    def write(self, seen: TrustedIdentity) -> None:
        """Replace the identity in the file unless the file has a newer one.

        Raises ``OSError`` if the file cannot be written.
        """
        with lock_file(self.path):
            held = TrustedIdentity()
            with suppress(SettingsInvalid):
                held = self.read()
            if seen.is_newer_than(held):
                write_private(self.path, msgspec.json.encode(seen).decode())


class DataLossGuard:
    """Decides whether this process may use the store. It checks each new connection.

    - ``trusted``: the store's fleet id and counter when this process trusted them last.
    - ``current``: fleet id and counter as they were read last.
    - ``reason``: why the store is refused; "" if it may be used.
    """

    def __init__(self, file: str) -> None:
        """Trust the identity in the file with the path ``file``; "" stands for no file.

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
        """Why the store is refused, and what the operator can do, in sentences."""
        if self.reason == NEWER:
            return (
                f"The store's data needs a newer version of Coronet (data {self.current.needs}; this program knows "
                f"{SCHEMA_VERSION}). Install the version that the other programs have."
            )
        return f"{_SENTENCES.get(self.reason, self.reason)} {_WHAT_TO_DO}"

    def reload(self) -> TrustedIdentity:
        """Read the identity file, which another process may have written; return the newest trusted identity."""
        if self.file is not None:
            with suppress(SettingsInvalid):
                kept = self.file.read()
                if kept.is_newer_than(self.trusted):
                    self.trusted = kept
        return self.trusted

    def evaluate(self, found: StoreIdentity, seen: TrustedIdentity) -> None:
        """Decide whether the store may be used, and keep the decision.

        - ``found``: the fleet id and counter that the store has reported.
        - ``seen``: the fleet id and counter that this process trusted when it sent the query.
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
        """Return whether the operator has accepted the store since this process refused it."""
        return bool(found.fleet) and not found.refused and found.accepted_ms > self._accepted_before_ms

    async def check_connection(self, connection: AbstractConnection) -> None:
        """Set up a new connection and check the store. Raises :class:`StoreIdentityMismatch` if it has lost data."""
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
