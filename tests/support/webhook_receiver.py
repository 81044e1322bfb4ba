"""A webhook: an HTTP server that verifies and records the requests to it, and answers them as a test says."""

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from service.embedded.ports import LOOPBACK


class WebhookReceiver:
    """The requests to a webhook, and what it answers.

    - ``secret``: the secret that the bot has told; requests are only accepted with a valid signature by it.
    - ``status``, ``headers``: of the answers; 200 means that a valid request is accepted.
    - ``accepted``: the id and the content of each request that was accepted.
    - ``refused``: the ids of the other requests.
    """

    def __init__(self) -> None:
        self.url = ""
        self.secret = ""
        self.status = 200
        self.headers: dict[str, str] = {}
        self.accepted: list[tuple[str, dict[str, Any]]] = []
        self.refused: list[str] = []

    @property
    def titles(self) -> list[str]:
        """The titles of all entries that were accepted, in order."""
        return [entry["title"] for _, content in self.accepted for entry in content["data"]["entries"]]

    async def receive(self, request: web.Request) -> web.Response:
        """Record a request and answer it."""
        body, message_id = await request.read(), request.headers["webhook-id"]
        if self.status != 200 or not self._is_signed(request, body):
            self.refused.append(message_id)
            return web.Response(status=self.status if self.status != 200 else 401, headers=self.headers)
        self.accepted.append((message_id, msgspec.json.decode(body)))
        return web.Response()

    def _is_signed(self, request: web.Request, body: bytes) -> bool:
        headers = request.headers
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        key = base64.b64decode(self.secret.removeprefix("whsec_"))
        valid = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
        return headers["webhook-signature"] == f"v1,{valid}"


@asynccontextmanager
async def receiving() -> AsyncIterator[WebhookReceiver]:
    """Run a webhook on the loopback address."""
    receiver, app = WebhookReceiver(), web.Application()
    app.router.add_post("/hook", receiver.receive)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, LOOPBACK, 0).start()
        receiver.url = f"http://{LOOPBACK}:{runner.addresses[0][1]}/hook"
        yield receiver
    finally:
        await runner.cleanup()
