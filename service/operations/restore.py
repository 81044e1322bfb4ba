"""``coronet restore``: restores a backup to a store, replacing the store's data."""

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, Final

from service.errors import UserError
from service.model import UserId
from service.operations.backup import (
    Header,
    check_file,
    describe_counts,
    describe_people,
    read_records,
)
from service.settings import Settings
from service.store import Store, open_store
from service.store.backup.export import scan_keys
from service.store.backup.restoration import StoreRestoration
from service.store.client import keys
from service.store.client.data_loss_guard import (
    COUNTER_INTERVAL_MS,
    READ_IDENTITY,
    SCHEMA_VERSION,
    parse_identity,
)
from service.store.client.erasure_file import ERASURES_KEPT_DAYS, ErasureFile

_RECORDS_PER_WRITE: Final = 100
_STOP_TIMEOUT_S: Final = 10.0
"""Maximum time to wait for programs that have just been stopped. A killed program counts as running until its lease in
Redis expires, which by default happens within this time."""
_CHECK_INTERVAL_S: Final = 0.5
_DAY_S: Final = 86_400


@contextmanager
def open_backup(name: str) -> Iterator[IO[bytes]]:
    """Open the file ``name`` for reading. If ``name`` is "-", standard input is used instead.

    Raises :class:`UserError` if the file cannot be opened.
    """
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error}.") from error
    with file:
        yield file


@contextmanager
def seekable(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield ``file`` if it is seekable; otherwise yield a temporary copy of its content.

    A pipe, for example, is not seekable.
    """
    if file.seekable():
        yield file
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(file, copy)
        copy.seek(0)
        yield copy


async def restore_backup(settings: Settings, file: IO[bytes], *, replace: bool, confirm: Callable[[str], bool]) -> str:
    """Write a backup to the store; return a summary. All programs of the fleet must have been stopped.

    The whole file is checked before anything is written. To replace the data of a store that is not empty, ``replace``
    must be True. ``confirm`` is then called with a question for the operator, and must return whether to continue.

    Raises :class:`UserError` if the file or the store cannot be used, or if the operator does not confirm.
    """
    header, counts = check_file(file)
    _check_header(header)
    store = open_store(settings, is_guarded=False)
    try:
        await _wait_until_stopped(store)
        writer = StoreRestoration(store)
        is_empty = await writer.is_empty()
        if not is_empty and not replace:
            raise UserError(
                "The store is not empty, so nothing was written. With --replace, its data is deleted and replaced by "
                "the backup."
            )
        erased, are_erasures_known = await _erasures(store, settings)
        question = (
            "Delete all data of Coronet in this store, and replace it with the backup of "
            f"{_date(header.origin.began_s)} ({describe_counts(counts)})?"
        )
        if not is_empty and not confirm(question):
            raise UserError("Nothing was changed.")
        await writer.begin()
        records = read_records(file)
        while some := list(islice(records, _RECORDS_PER_WRITE)):
            await writer.write(some)
        again = await writer.finish(header.origin, erased)
    finally:
        await store.close()
    lines = [f"Restored the backup of {_date(header.origin.began_s)}: {describe_counts(counts)}."]
    if again:
        lines.append(f"Erased again, because they asked for it after the backup: {describe_people(again)}.")
    if not are_erasures_known:
        lines.append(
            "No list of people who were erased after the backup was found: neither in the store that was replaced, nor "
            "beside store_identity_file. Erase them again, if there are any."
        )
    lines.append("Start the programs now. Everybody has to log in to the console again.")
    return "\n".join(lines)


def _check_header(header: Header) -> None:
    """Raise :class:`UserError` if the backup has a newer schema or is too old.

    A backup is too old if it was made more than ``ERASURES_KEPT_DAYS`` days ago. Erasures of people are recorded only
    for this long. An older backup could bring back people who have been erased since.
    """
    if header.origin.schema > SCHEMA_VERSION:
        raise UserError(
            f"The backup was made by Coronet {header.product_version}, whose stored data (version "
            f"{header.origin.schema}) this version does not know (up to {SCHEMA_VERSION}). Restore it with that one."
        )
    if header.origin.began_s < time.time() - ERASURES_KEPT_DAYS * _DAY_S:
        raise UserError(
            f"The backup is older than {ERASURES_KEPT_DAYS} days. People who were erased since then would come back, "
            "because erasures are listed no longer than that."
        )


async def _wait_until_stopped(store: Store) -> None:
    """Wait until no program uses the store any more.

    Raises a :class:`UserError` that lists the programs if some still use the store after ``_STOP_TIMEOUT_S``.
    """
    for _ in range(int(_STOP_TIMEOUT_S / _CHECK_INTERVAL_S)):
        live = await live_programs(store)
        if not live:
            return
        await asyncio.sleep(_CHECK_INTERVAL_S)
    raise UserError(f"Programs still use the store: {', '.join(live)}. Stop all workers, bots and consoles first.")


async def live_programs(store: Store) -> list[str]:
    """Return a description of each program that is using the store.

    Workers and bots are found by their leases in the store. If there are no leases, a counter in the store shows
    whether another program, such as the console, is running: every program increments it at short intervals. All such
    programs share one description.
    """
    now_s, ring = await store.ring.time_and_view()
    live = sorted({f"worker {node.name}" for node in ring.nodes})
    async for names in scan_keys(store.redis, keys.partition_leases("*")[0]):
        for name in names:
            holders = await store.redis.call("ZRANGEBYSCORE", name, now_s * 1000, "+inf")
            live += [f"bot {holder.decode()}" for holder in holders]
    grown_ms = parse_identity(await store.redis.call(*READ_IDENTITY)).grown_ms
    if not live and now_s * 1000 - grown_ms < 2 * COUNTER_INTERVAL_MS:
        live = ["a program without a lease, such as the console"]
    return live


async def _erasures(store: Store, settings: Settings) -> tuple[dict[UserId, int], bool]:
    """Return (erasures, all_known): the Unix time of each user's last erasure, and whether the list is complete.

    Erasures are read from the store, and from the erasure file on this machine, which survives the loss of the
    store. ``all_known`` is false if neither lists any erasure and no program on this machine has used the store.
    Programs on other machines may then have recorded erasures.
    """
    found = await store.redis.call("ZRANGE", keys.ERASED_USERS, 0, -1, "WITHSCORES")
    erased = {uid.decode(): int(at_s) for uid, at_s in found}
    in_file = _read_erasure_file(settings)
    for uid, at_s in (in_file or {}).items():
        erased[uid] = max(at_s, erased.get(uid, 0))
    return erased, bool(erased) or in_file is not None


def _read_erasure_file(settings: Settings) -> dict[UserId, int] | None:
    """Return the erasures in this machine's erasure file: the Unix time of each user's last erasure.

    The file is created at the first erasure. Until then, the result is {}. The result is None if no program on this
    machine has used the store yet, or if the setting ``store_identity_file`` is empty.
    """
    if not settings.store_identity_file:
        return None
    identity_file = Path(settings.store_identity_file)
    file = ErasureFile(identity_file)
    return file.read() if identity_file.exists() or file.path.exists() else None


def _date(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")
