"""What other workers may ask of this one. What is not sealed, of now, new, and small is refused and counted."""

from collections.abc import Callable, Mapping

import structlog
from aiohttp import web

from service.errors import PeerRefused
from service.metrics import PEER_REFUSALS
from service.model import NodeId
from service.net.http_server import client_of
from service.net.peers import BEGIN_ANEW, MOST_REQUEST_BYTES, REFUSED, SEAL
from service.net.seals import Sealer, read

Answerer = Callable[[NodeId, bytes], bytes]
"""From who asks and what, to the answer. May raise :class:`PeerRefused`; its reason ``stream`` means: begin anew."""

log = structlog.get_logger(__name__)


class Door:
    """One worker's door: closed until it is opened."""

    def __init__(self) -> None:
        """Stay closed: everybody is told that there is nothing here."""
        self._me: NodeId = ""
        self._sealer: Sealer | None = None
        self._fleet_s: Callable[[], float] = float
        self._answerers: Mapping[str, Answerer] = {}

    def open(self, me: NodeId, sealer: Sealer, fleet_s: Callable[[], float], answerers: Mapping[str, Answerer]) -> None:
        """Answer as this worker from now on; ``answerers`` by what is asked."""
        self._me, self._sealer, self._fleet_s, self._answerers = me, sealer, fleet_s, answerers

    def routes(self) -> list[web.RouteDef]:
        """Return where others come to."""
        return [web.post("/peers/{worker}/{verb}", self._answer)]

    async def _answer(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        if self._sealer is None or request.match_info["worker"] != self._me or verb not in self._answerers:
            raise web.HTTPNotFound
        try:
            return await self._answered(request, verb, self._sealer)
        except PeerRefused as error:
            PEER_REFUSALS.labels(error.reason).inc()
            log.info("another worker is refused", at=client_of(request).address, why=str(error))
            return web.Response(status=REFUSED)

    async def _answered(self, request: web.Request, verb: str, sealer: Sealer) -> web.Response:
        seal = read(request.headers.get(SEAL, ""))
        sealer.timely(seal, self._fleet_s())
        body = await _bounded(request)
        sealer.check(seal, verb, body, self._fleet_s())
        status, answer = 200, b""
        try:
            answer = self._answerers[verb](seal.sender, body)
        except PeerRefused as error:
            if error.reason != "stream":
                raise
            PEER_REFUSALS.labels(error.reason).inc()
            status = BEGIN_ANEW
        return web.Response(status=status, body=answer, headers={SEAL: sealer.answer_mac(seal.nonce, status, answer)})


async def _bounded(request: web.Request) -> bytes:
    body = bytearray()
    async for part in request.content.iter_any():
        body += part
        if len(body) > MOST_REQUEST_BYTES:
            raise PeerRefused(f"A request has more than {MOST_REQUEST_BYTES} bytes.", reason="size")
    return bytes(body)
