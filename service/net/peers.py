"""Requests from worker to worker: sealed, within bounds of time and size, to addresses that the ring names.

The socket guard is for publishers; workers are where their leases say, mostly on private addresses.
"""

import secrets
from collections.abc import Callable
from hashlib import sha1
from typing import Self

import aiohttp
import msgspec

from service.errors import PeerRefused, PeerSilent
from service.model import NodeId, NodeInfo
from service.net.seals import NONCE_BYTES, Sealer

SEAL = "Coronet-Seal"
MOST_REQUEST_BYTES = 1024 * 1024
REFUSED, BEGIN_ANEW = 403, 409
_CONNECTIONS = 64
_KEPT_OPEN_S = 60.0


class Peer(msgspec.Struct, frozen=True):
    """A worker process, as others of the fleet reach it; another life of it is another one."""

    id: NodeId
    url: str


def peer_of(info: NodeInfo) -> Peer | None:
    """Return the worker that a node is part of; None if it serves nothing."""
    if not info.metrics_url:
        return None
    life = f"{info.metrics_url} {info.process or info.name}"
    return Peer(sha1(life.encode(), usedforsecurity=False).hexdigest(), info.metrics_url.removesuffix("/metrics"))


class PeerClient:
    """Asks other workers. Use as an async context manager."""

    def __init__(self, sealer: Sealer, fleet_s: Callable[[], float]) -> None:
        """Seal with ``sealer``, at the fleet's time (Unix s)."""
        self._sealer = sealer
        self._fleet_s = fleet_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open nothing yet; connections are made on demand."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_CONNECTIONS, keepalive_timeout=_KEPT_OPEN_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    async def ask(self, peer: Peer, verb: str, body: bytes, *, within_s: float, most_bytes: int) -> bytes:
        """Return a worker's answer.

        Raises :class:`PeerSilent` if it cannot be reached in time, :class:`PeerRefused` if it refuses, or answers with
        more than ``most_bytes``, or not as itself; its reason is ``stream`` if it wants to begin anew.
        """
        if self._session is None:
            raise RuntimeError("the client is not open")
        nonce = secrets.token_hex(NONCE_BYTES)
        seal = self._sealer.seal(peer.id, verb, body, nonce, self._fleet_s())
        try:
            async with self._session.post(
                f"{peer.url}/peers/{peer.id}/{verb}",
                data=body,
                headers={SEAL: seal.header()},
                timeout=aiohttp.ClientTimeout(total=within_s),
                allow_redirects=False,
            ) as response:
                answer = await _bounded(response, most_bytes)
                mac = response.headers.get(SEAL, "")
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise PeerSilent(f"Worker {peer.id[:8]} does not answer at {peer.url}: {error!r}") from error
        if response.status not in {200, BEGIN_ANEW}:
            raise PeerRefused(f"Worker {peer.id[:8]} refuses to answer: {response.status}.", reason="refused")
        self._sealer.check_answer(nonce, response.status, answer, mac)
        if response.status == BEGIN_ANEW:
            raise PeerRefused(f"Worker {peer.id[:8]} has forgotten what was said.", reason="stream")
        return answer


async def _bounded(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    if (response.content_length or 0) > most_bytes:
        response.close()
        raise PeerRefused(f"A worker answers with {response.content_length} bytes.", reason="size")
    parts = bytearray()
    async for part in response.content.iter_any():
        parts += part
        if len(parts) > most_bytes:
            response.close()
            raise PeerRefused(f"A worker answers with more than {most_bytes} bytes.", reason="size")
    return bytes(parts)
