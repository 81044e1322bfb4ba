"""The client for requests between workers. Requests are signed, and their time and size are limited.

Each worker publishes its address in its lease, an entry in Redis that expires soon after the worker dies. The address
guard does not apply here, because it protects against publishers, and because most workers have private addresses.
"""

import secrets
from collections.abc import Callable
from functools import lru_cache
from hashlib import sha1
from typing import Self

import aiohttp
import msgspec

from service.errors import PeerProtocolError, PeerUnreachable
from service.model import NodeId, NodeInfo
from service.net.peer_request_signatures import NONCE_BYTES, SIGNATURE_HEADER, RequestSigner
from service.net.response_reader import read_at_most

MAX_REQUEST_BYTES = 1024 * 1024
REFUSED, RESTART_STREAM = 403, 409
"""HTTP status codes: 403 if a request is rejected, 409 if it contains a message of a stream that the recipient cannot
continue. A stream is the numbered sequence of messages from one worker to another. After 409, the sender begins a new
stream."""
_MAX_CONNECTIONS = 64
_KEEP_ALIVE_S = 60.0
_MAX_CACHED_PEERS = 4_096


class Peer(msgspec.Struct, frozen=True):
    """A worker process to which other workers can send requests.

    - ``id`` identifies the process. It changes when the process is restarted.
    - ``url`` is the address of the process.
    """

    id: NodeId
    url: str


@lru_cache(_MAX_CACHED_PEERS)
def peer_of(info: NodeInfo) -> Peer | None:
    """Return the worker process that runs the node ``info``; None if the process has no HTTP server."""
    if not info.metrics_url:
        return None
    process = f"{info.metrics_url} {info.process or info.name}"
    return Peer(sha1(process.encode(), usedforsecurity=False).hexdigest(), info.metrics_url.removesuffix("/metrics"))


class PeerClient:
    """A client for requests to other workers; an async context manager.

    - ``signer`` signs the requests.
    - ``fleet_s`` is a function that returns the time shared by all workers, which is Redis's clock in Unix seconds.
    """

    def __init__(self, signer: RequestSigner, fleet_s: Callable[[], float]) -> None:
        self._signer = signer
        self._fleet_s = fleet_s

    async def __aenter__(self) -> Self:
        """Create the connection pool. Connections are opened on demand."""
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=_MAX_CONNECTIONS, keepalive_timeout=_KEEP_ALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        await self._session.close()

    async def request(self, peer: Peer, verb: str, body: bytes, *, timeout_s: float, max_bytes: int) -> bytes:
        """Send a request to ``peer``; return the body of its response.

        ``verb`` is the operation, which is the last part of the URL.

        Raises:
        - :class:`PeerUnreachable` if there is no response within ``timeout_s`` seconds
        - :class:`PeerProtocolError` if ``peer`` rejects the request, or if the response is larger than ``max_bytes`` or
          has an invalid signature
        - :class:`PeerProtocolError` with the reason ``stream`` if ``peer`` cannot continue the stream of numbered
          messages from this worker. This worker must then begin a new stream.
        """
        nonce = secrets.token_hex(NONCE_BYTES)
        signature = self._signer.sign(peer.id, verb, body, nonce, self._fleet_s())
        try:
            async with self._session.post(
                f"{peer.url}/peers/{peer.id}/{verb}",
                data=body,
                headers={SIGNATURE_HEADER: signature.header()},
                timeout=aiohttp.ClientTimeout(total=timeout_s),
                allow_redirects=False,
            ) as response:
                response_body = await read_at_most(response, max_bytes)
                if response_body is None:
                    response.close()
                    raise PeerProtocolError(f"A worker answers with more than {max_bytes} bytes.", reason="size")
                mac = response.headers.get(SIGNATURE_HEADER, "")
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise PeerUnreachable(f"Worker {peer.id[:8]} does not answer at {peer.url}: {error!r}") from error
        if response.status not in {200, RESTART_STREAM}:
            raise PeerProtocolError(f"Worker {peer.id[:8]} refuses to answer: {response.status}.", reason="refused")
        self._signer.verify_response(nonce, response.status, response_body, mac)
        if response.status == RESTART_STREAM:
            raise PeerProtocolError(f"Worker {peer.id[:8]} asks to restart the stream.", reason="stream")
        return response_body
