"""Files that are complete or absent, and readable by their owner only."""

import os
import secrets
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Put ``text`` in place atomically, with mode 0600; survives kill -9 at any moment."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def ensure_secret_file(directory: Path, name: str) -> Path:
    """Return the file of a secret, which is made up at the first call and kept."""
    path = directory / name
    if not path.exists():
        write_private(path, secrets.token_urlsafe(24))
    return path
