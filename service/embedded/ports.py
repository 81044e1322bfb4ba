"""TCP ports on loopback: choosing them, remembering them in a file, and checking the programs that listen on them."""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from service.errors import OperationalError, StoreIdentityMismatch
from service.private_files import write_private

LOOPBACK = "127.0.0.1"

# Below Linux's range of ephemeral ports (32768 and up), so that no outgoing connection takes a port between two starts.
_FIRST_PORT = 12_000
_PORT_COUNT = 20_000

_RESPONSE_TIMEOUT_S = 2.0


def choose_ports(file: Path, requested: Mapping[str, int]) -> dict[str, int]:
    """Return a port for each name in ``requested``, and save the ports in ``file`` (JSON).

    ``requested`` maps each name to a port, or to 0 for any free port. For 0, the port saved by an earlier call is
    chosen again if it is still free. Raises :class:`OperationalError` if a requested port is in use.
    """
    saved: dict[str, int] = {}
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        saved = msgspec.json.decode(file.read_bytes(), type=dict[str, int])
    for name, port in requested.items():
        if port and not _is_free(port):
            raise OperationalError(
                f"Port {port} (for {name}) is in use: stop the program that uses it, or choose another port."
            )
    chosen = {name: port for name, port in requested.items() if port}
    for name in requested.keys() - chosen.keys():
        chosen[name] = _reuse_or_choose(saved.get(name, 0), chosen.values())
    write_private(file, msgspec.json.encode(saved | chosen).decode())
    return chosen


async def is_listening(port: int) -> bool:
    """Return whether a program on loopback accepts connections on ``port``."""
    return await _first_line(port, b"") is not None


async def is_ready(port: int) -> bool:
    """Return whether the HTTP server on ``port`` on loopback answers ``/readyz`` with status 200."""
    return (await _readiness(port))[:1] == [b"200"]


async def has_started(port: int) -> bool:
    """Return whether the HTTP server on ``port`` is ready, or is only waiting for a decision by the operator.

    If the store has lost data or belongs to another fleet, the server waits until the operator accepts the store's
    data.
    """
    status = await _readiness(port)
    return status[:1] == [b"200"] or status[:2] == [b"503", StoreIdentityMismatch.code.encode()]


async def _readiness(port: int) -> list[bytes]:
    """Request ``/readyz`` on ``port``; return the status code and the reason phrase of the response as words.

    For example, the result is ``[b"200", b"OK"]``. It is empty if there is no response in time.
    """
    return (await _first_line(port, b"GET /readyz HTTP/1.0\r\n\r\n") or b"").split()[1:]


async def _first_line(port: int, request: bytes) -> bytes | None:
    """Send ``request`` to ``port`` and return the first line of the response; None if there is no response in time.

    If ``request`` is empty, b"" is returned as soon as the connection is accepted.
    """
    try:
        async with asyncio.timeout(_RESPONSE_TIMEOUT_S):
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


def _reuse_or_choose(port: int, taken: Collection[int]) -> int:
    while not port or port in taken or not _is_free(port):
        port = _FIRST_PORT + secrets.randbelow(_PORT_COUNT)
    return port
