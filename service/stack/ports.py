"""Ports on loopback: chosen once, kept in a file, checked before use."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from service.errors import OperationalError
from service.stack.files import write_private

LOOPBACK = "127.0.0.1"

# Below Linux's range for outgoing connections (32768 and up), so that none of those takes a kept port meanwhile.
_LOWEST = 12_000
_COUNT = 20_000


def choose(kept: Path, wanted: Mapping[str, int]) -> dict[str, int]:
    """Return a free port for each name: the wanted one, else the one ``kept`` remembers, else any (wanted: 0).

    Raises :class:`OperationalError` when a wanted port is taken.
    """
    remembered: dict[str, int] = {}
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        remembered = msgspec.json.decode(kept.read_bytes(), type=dict[str, int])
    for name, port in wanted.items():
        if port and not _is_free(port):
            raise OperationalError(f"Port {port} (for {name}) is taken: stop what uses it, or choose another.")
    chosen = {name: port or _again_or_any(remembered.get(name, 0)) for name, port in wanted.items()}
    write_private(kept, msgspec.json.encode(remembered | chosen).decode())
    return chosen


async def accepts(port: int) -> bool:
    """Whether something on loopback accepts connections at the port."""
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    writer.close()
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _again_or_any(port: int) -> int:
    while not port or not _is_free(port):
        port = _LOWEST + secrets.randbelow(_COUNT)
    return port
