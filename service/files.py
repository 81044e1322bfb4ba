"""Atomic writes of private files (mode 0600)."""

import os
import secrets
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` atomically with mode 0600; a crash leaves the old file or the new one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def ensure_secret_file(directory: Path, name: str) -> Path:
    """Return the path of the file ``name`` in ``directory``, which contains a secret.

    If the file does not exist, it is created with a random secret.
    """
    path = directory / name
    if not path.exists():
        write_private(path, secrets.token_urlsafe(24))
    return path
