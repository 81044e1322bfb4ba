"""The store's identity: which fleet it belongs to, and a counter by which a store that lost data is noticed.

The store carries the fleet's id and a counter that grows once in ``COUNTER_INTERVAL_MS`` while any program runs. A
program
remembers what it saw last, and shares that with the other programs of its machine in a file. A store that has no id
although one was seen, another fleet's id, or a counter behind the one that was seen has lost what the fleet relies on.
A program that finds such a store uses it no more until the operator accepts it (``coronet admin accept-store``), or the
right data is back.

With ``appendfsync everysec`` a power cut may take the last second or two. That must not stop a fleet: a counter that is
``MAX_COUNTER_LAG`` behind, which is at least ``MAX_COUNTER_LAG * GROW_EVERY_MS`` of loss, is trusted. More is not.

**Where it is checked.** Each new connection asks for the identity before anything else, because a Redis that restarts
drops all connections. :class:`service.store.client.identity_watch.IdentityWatch` asks again every few seconds and
before somebody is told that they have no subscriptions, which covers ``FLUSHALL``. In a Redis Cluster one node has the
identity: the loss of that node's data is noticed as on one Redis. The loss of another node's is not.
"""

import fcntl
import os
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from redis import exceptions

from service.errors import StoreIdentityMismatch
from service.files import write_private
from service.settings import SettingsInvalid
from service.store.client import keys

COUNTER_INTERVAL_MS: Final = 2_000
MAX_COUNTER_LAG: Final = 2
"""How far the counter may fall behind: what a power cut takes when Redis writes its file once a second."""

READ_IDENTITY: Final = ("HMGET", keys.STORE_IDENTITY, "fleet", "counter", "grown_ms", "accepted_ms", "refused")

EMPTIED: Final = "emptied"
OTHER_FLEET: Final = "other fleet"
BEHIND: Final = "behind"

_WHAT_TO_DO: Final = (
    "Nothing is served, so that nobody is told that their subscriptions are gone. Bring the right data back, or go on "
    "with what is there: coronet admin accept-store, with the console's console_admin_token."
)
_SENTENCES: Final = {
    EMPTIED: "The store is empty, although this fleet has used it: Redis lost its data, or runs over another folder.",
    OTHER_FLEET: "The store belongs to another fleet: redis_url leads to another Redis, or its data was replaced.",
    BEHIND: "The store is older than it was: Redis lost its latest data, or an older copy was restored.",
}


class StoreIdentity(msgspec.Struct, frozen=True):
    """What a store says of itself; times are in ms of Redis's clock.

    ``accepted_ms``: when the operator accepted the store last. ``refused``: why a program refused it, after which no
    other uses it either.
    """

    fleet: str = ""
    counter: int = 0
    grown_ms: int = 0
    accepted_ms: int = 0
    refused: str = ""


class TrustedIdentity(msgspec.Struct, frozen=True):
    """The last identity that was trusted, and when (ms of Redis's clock). The file holds it as JSON.

    A counter of 0: the id was made, and the store has not been used yet.
    """

    fleet: str
    counter: int = 0
    at_ms: int = 0

    @property
    def in_use(self) -> bool:
        """Whether the store cannot have lost this id in a power cut."""
        return self.counter > MAX_COUNTER_LAG

    def is_newer_than(self, other: "TrustedIdentity | None") -> bool:
        """Whether the store was seen later, or the counter further, than by ``other``."""
        return other is None or (self.at_ms, self.counter) > (other.at_ms, other.counter)


def parse_identity(reply: Sequence[Any]) -> StoreIdentity:
    """Read the reply to ``READ_IDENTITY``."""
    fleet, counter, grown_ms, accepted_ms, refused = (
        value if isinstance(value, str) else (value or b"").decode(errors="replace") for value in reply
    )
    return StoreIdentity(fleet, int(counter or 0), int(grown_ms or 0), int(accepted_ms or 0), refused)


def refusal_reason(found: StoreIdentity, seen: TrustedIdentity | None) -> str:
    """Return why a store must not be used, "" if it may be."""
    if found.refused:
        return found.refused
    if seen is None:
        return ""
    if not found.fleet:
        return EMPTIED if seen.in_use else ""
    if found.fleet != seen.fleet:
        return OTHER_FLEET
    is_behind = found.counter < seen.counter - MAX_COUNTER_LAG
    return BEHIND if is_behind and found.accepted_ms <= seen.at_ms else ""


class IdentityFile:
    """What was seen of the store, shared by the programs of one machine."""

    def __init__(self, path: Path) -> None:
        """Use this file; it need not exist."""
        self._path = path

    def read(self) -> TrustedIdentity | None:
        """Return what the file holds, None if there is no file. Raises :class:`SettingsInvalid`."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=TrustedIdentity)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise SettingsInvalid(
                f"The store's identity file {self._path} cannot be read ({error}). Restore it, or delete it: a new one "
                "is made for the store that is found."
            ) from error

    def write(self, seen: TrustedIdentity) -> None:
        """Keep this, unless another program has kept something newer. Raises ``OSError``."""
        lock = os.open(self._path.with_name(f".{self._path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            held = None
            with suppress(SettingsInvalid):
                held = self.read()
            if seen.is_newer_than(held):
                write_private(self._path, msgspec.json.encode(seen).decode())
        finally:
            os.close(lock)


class _Connection(Protocol):
    """What is needed of a driver's connection."""

    def on_connect(self) -> Awaitable[None]: ...
    def send_command(self, *args: Any) -> Awaitable[None]: ...
    def read_response(self) -> Awaitable[Any]: ...
    def disconnect(self) -> Awaitable[None]: ...


class IdentityGuard:
    """One process's decision whether the store may be used. All its connections ask for it."""

    def __init__(self, file: str) -> None:
        """Begin with what the file knows, "" for none. Raises :class:`SettingsInvalid` if it cannot be read."""
        self.file = IdentityFile(Path(file)) if file else None
        self.seen = self.file.read() if self.file else None
        self.found = StoreIdentity()
        self.reason = ""
        self._accepted_before_ms = 0

    def check(self) -> None:
        """Return if the store may be used. Raises :class:`StoreIdentityMismatch`."""
        if self.reason:
            raise StoreIdentityMismatch(f"{_SENTENCES.get(self.reason, self.reason)} {_WHAT_TO_DO}")

    def reload(self) -> TrustedIdentity | None:
        """Return what was seen of the store last, by this program or by another one of its machine."""
        if self.file is not None:
            with suppress(SettingsInvalid):
                kept = self.file.read()
                if kept is not None and kept.is_newer_than(self.seen):
                    self.seen = kept
        return self.seen

    def evaluate(self, found: StoreIdentity, seen: TrustedIdentity | None) -> None:
        """Decide anew, by what was found, and what had been seen when that was asked for.

        What was seen since then is no measure: other programs may have made the counter grow in between.
        """
        self.found = found
        reason = refusal_reason(found, seen)
        if reason and not (self.reason and self._is_accepted(found)):
            if not self.reason:
                self._accepted_before_ms = max(found.accepted_ms, seen.at_ms if seen else 0)
            self.reason = reason
            return
        self.reason = ""
        at_ms = max(found.grown_ms, found.accepted_ms)
        if found.fleet and (self.seen is None or at_ms >= self.seen.at_ms):
            goes_on = self.seen is not None and self.seen.fleet == found.fleet and found.accepted_ms <= self.seen.at_ms
            counter = max(found.counter, self.seen.counter) if goes_on and self.seen else found.counter
            self.seen = TrustedIdentity(found.fleet, counter, at_ms)

    def _is_accepted(self, found: StoreIdentity) -> bool:
        """Return whether the operator has accepted the store since it was refused."""
        return bool(found.fleet) and not found.refused and found.accepted_ms > self._accepted_before_ms

    async def check_connection(self, connection: _Connection) -> None:
        """Set up a new connection and verify the store's identity. Raises StoreIdentityMismatch."""
        await connection.on_connect()
        seen = self.reload()
        await connection.send_command(*READ_IDENTITY)
        try:
            reply = await connection.read_response()
        except (exceptions.MovedError, exceptions.AskError, exceptions.ClusterDownError, exceptions.TryAgainError):
            return  # of a cluster's nodes one alone has the identity
        self.evaluate(parse_identity(reply), seen)
        if self.reason:
            await connection.disconnect()
        self.check()
