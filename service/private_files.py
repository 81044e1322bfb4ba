"""Atomic writes of private files (mode 0600), and file locks."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def open_private(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file with mode 0600 that replaces ``path`` when the context ends without an exception.

    After an exception or a crash, the previous file is unchanged. Raises ``OSError`` if the file cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)  # of a process that was killed, and had the same id
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_private(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` atomically, with mode 0600: a crash leaves either the old file or the new one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_private(path) as file:
        file.write(text.encode())


def ensure_secret_file(directory: Path, name: str) -> Path:
    """Return the path of the secret file ``name`` in ``directory``, creating it with a random secret if necessary."""
    path = directory / name
    if not path.exists():
        write_private(path, secrets.token_urlsafe(24))
    return path


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file at ``path`` until the context ends.

    If another process holds the lock, wait until it releases it.
    """
    lock = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
