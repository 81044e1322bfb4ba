"""Ports on loopback: chosen once, kept in a file, checked before use."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from service.errors import OperationalError, StoreIdentityMismatch
from service.files import write_private

LOOPBACK = "127.0.0.1"

# Below Linux's range for outgoing connections (32768 and up), so that none of those takes a kept port meanwhile.
_LOWEST = 12_000
_COUNT = 20_000

_ANSWER_WITHIN_S = 2.0


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
    chosen = {name: port for name, port in wanted.items() if port}
    for name in wanted.keys() - chosen.keys():
        chosen[name] = _again_or_any(remembered.get(name, 0), chosen.values())
    write_private(kept, msgspec.json.encode(remembered | chosen).decode())
    return chosen


async def accepts(port: int) -> bool:
    """Whether something on loopback accepts connections at the port."""
    return await _first_line(port, b"") is not None


async def says_ready(port: int) -> bool:
    """Whether the program that serves HTTP on loopback at the port answers ``/readyz`` with 200."""
    status_line = await _first_line(port, b"GET /readyz HTTP/1.0\r\n\r\n")
    return status_line is not None and status_line.split()[1:2] == [b"200"]


async def has_started(port: int) -> bool:
    """Whether that program is ready, or would be if its operator accepted the store."""
    status_line = await _first_line(port, b"GET /readyz HTTP/1.0\r\n\r\n") or b""
    return status_line.split()[1:2] == [b"200"] or status_line.split()[1:3] == [
        b"503",
        StoreIdentityMismatch.code.encode(),
    ]


async def _first_line(port: int, request: bytes) -> bytes | None:
    """Return the first line of the answer, empty if nothing was asked; None when nobody answers in time."""
    try:
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            with contextlib.closing(writer):
                writer.write(request)
                return await reader.readline() if request else b""
    except (OSError, TimeoutError):
        return None


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _again_or_any(port: int, taken: Collection[int]) -> int:
    while not port or port in taken or not _is_free(port):
        port = _LOWEST + secrets.randbelow(_COUNT)
    return port
