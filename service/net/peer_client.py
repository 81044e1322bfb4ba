"""Requests from worker to worker: sealed, within bounds of time and size, to addresses that the ring names.

The socket guard is for publishers; workers are where their leases say, mostly on private addresses.

Requests and answers are sealed with the cluster's secret (HMAC-SHA-256). A request's seal covers its sender, its one
recipient, the verb, the time, a nonce and the body; an answer's covers the request's nonce, so that none serves for
another request. Nonces are remembered for ``WINDOW_S``, and no request from before or after that is accepted. Times are
the fleet's: Redis's clock.
"""

import hmac
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha1, sha256
from typing import Self

import aiohttp
import msgspec

from service.errors import PeerProtocolError, PeerUnreachable
from service.model import NodeId, NodeInfo
from service.net.response import read_at_most

SIGNATURE_HEADER = "Coronet-Seal"
MAX_REQUEST_BYTES = 1024 * 1024
REFUSED, RESTART_STREAM = 403, 409
_CONNECTIONS = 64
_KEPT_OPEN_S = 60.0

WINDOW_S = 30.0
NONCE_BYTES = 12
MOST_NONCES = 200_000
"""So many requests are taken within the window at most: memory for their numbers is bounded."""

_FORM = re.compile(r"coronet1 ([0-9a-f]{40}) (\d{1,16}) ([0-9a-f]{24}) ([0-9a-f]{64})")


class RequestSignature(msgspec.Struct, frozen=True):
    """What a request says of itself. ``at_ms`` is Unix time."""

    sender: NodeId
    at_ms: int
    nonce: str
    mac: str

    def header(self) -> str:
        """Return it as it stands in a request."""
        return f"coronet1 {self.sender} {self.at_ms} {self.nonce} {self.mac}"


def parse_signature(header: str) -> RequestSignature:
    """Return what a request's header says; raises :class:`PeerProtocolError`."""
    found = _FORM.fullmatch(header)
    if found is None:
        raise PeerProtocolError("A request carries no seal of ours.", reason="signature")
    sender, at_ms, nonce, mac = found.groups()
    return RequestSignature(sender, int(at_ms), nonce, mac)


class RequestSigner:
    """Seals and checks seals for one worker."""

    def __init__(self, secret: str, me: NodeId) -> None:
        """Have the cluster's secret, which must not be empty."""
        self._key = sha256(b"coronet peers\0" + secret.encode()).digest()
        self._me = me
        self._seen: OrderedDict[tuple[NodeId, str], int] = OrderedDict()

    def seal(self, to: NodeId, verb: str, body: bytes, nonce: str, now_s: float) -> RequestSignature:
        """Return the seal of a request to a worker."""
        at_ms = int(now_s * 1000)
        unsealed = RequestSignature(self._me, at_ms, nonce, "")
        return RequestSignature(self._me, at_ms, nonce, self._request_mac(unsealed, to, verb, body))

    def timely(self, seal: RequestSignature, now_s: float) -> None:
        """Raise :class:`PeerProtocolError` for a request of another time: before its body is read."""
        if abs(now_s - seal.at_ms / 1000) > WINDOW_S:
            raise PeerProtocolError(f"A request of {seal.sender[:8]} is not of now. Do clocks differ?", reason="late")

    def check(self, seal: RequestSignature, verb: str, body: bytes, now_s: float) -> None:
        """Raise :class:`PeerProtocolError` if a request is not what its sender meant for us, or came before."""
        self.timely(seal, now_s)
        mac = self._request_mac(seal, self._me, verb, body)
        if not hmac.compare_digest(mac, seal.mac):
            raise PeerProtocolError("A request's seal is wrong. Have all workers the same secret?", reason="signature")
        self._forget(now_s)
        once = seal.sender, seal.nonce
        if once in self._seen:
            raise PeerProtocolError(f"A request of {seal.sender[:8]} came twice.", reason="replay")
        if len(self._seen) >= MOST_NONCES:
            raise PeerProtocolError("There are more requests than can be told from replays.", reason="flood")
        self._seen[once] = int(now_s)

    def answer_mac(self, nonce: str, status: int, body: bytes) -> str:
        """Return the seal of the answer to a request."""
        return self._mac(f"answer\n{nonce}\n{status}\n", body)

    def check_answer(self, nonce: str, status: int, body: bytes, mac: str) -> None:
        """Raise :class:`PeerProtocolError` if this is not the answer that a worker gave to that request."""
        if not hmac.compare_digest(self.answer_mac(nonce, status, body), mac):
            raise PeerProtocolError("An answer's seal is wrong.", reason="signature")

    def _request_mac(self, seal: RequestSignature, to: NodeId, verb: str, body: bytes) -> str:
        return self._mac(f"request\n{seal.sender}\n{to}\n{verb}\n{seal.at_ms}\n{seal.nonce}\n", body)

    def _mac(self, about: str, body: bytes) -> str:
        return hmac.digest(self._key, about.encode() + sha256(body).digest(), "sha256").hex()

    def _forget(self, now_s: float) -> None:
        # A request may be of the future by the window, and come again until it is of the past by as much.
        while self._seen and now_s - next(iter(self._seen.values())) > 2 * WINDOW_S + 1:
            self._seen.popitem(last=False)


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

    def __init__(self, sealer: RequestSigner, fleet_s: Callable[[], float]) -> None:
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

        Raises :class:`PeerUnreachable` if it cannot be reached in time, :class:`PeerProtocolError` if it refuses, or
        answers with more than ``most_bytes``, or not as itself; its reason is ``stream`` if it wants to begin anew.
        """
        if self._session is None:
            raise RuntimeError("the client is not open")
        nonce = secrets.token_hex(NONCE_BYTES)
        seal = self._sealer.seal(peer.id, verb, body, nonce, self._fleet_s())
        try:
            async with self._session.post(
                f"{peer.url}/peers/{peer.id}/{verb}",
                data=body,
                headers={SIGNATURE_HEADER: seal.header()},
                timeout=aiohttp.ClientTimeout(total=within_s),
                allow_redirects=False,
            ) as response:
                answer = await read_at_most(response, most_bytes)
                if answer is None:
                    response.close()
                    raise PeerProtocolError(f"A worker answers with more than {most_bytes} bytes.", reason="size")
                mac = response.headers.get(SIGNATURE_HEADER, "")
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            raise PeerUnreachable(f"Worker {peer.id[:8]} does not answer at {peer.url}: {error!r}") from error
        if response.status not in {200, RESTART_STREAM}:
            raise PeerProtocolError(f"Worker {peer.id[:8]} refuses to answer: {response.status}.", reason="refused")
        self._sealer.check_answer(nonce, response.status, answer, mac)
        if response.status == RESTART_STREAM:
            raise PeerProtocolError(f"Worker {peer.id[:8]} has forgotten what was said.", reason="stream")
        return answer
