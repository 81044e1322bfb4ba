"""A WebSub hub that accepts and verifies subscriptions, and pushes to subscribers."""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self

import aiohttp
from aiohttp import web

CHALLENGE = "prove-it"


@dataclass
class Hub:
    """A hub; ``asked`` has the forms of received requests, ``subscribed`` those of subscribers, by callback URL.

    Leases last ``lease_s`` seconds. With ``denies``, the hub denies subscriptions; with ``silent``, it does not verify
    them.
    """

    url: str = ""
    lease_s: int = 3_600
    denies: bool = False
    silent: bool = False
    asked: list[dict[str, str]] = field(default_factory=list)
    subscribed: dict[str, dict[str, str]] = field(default_factory=dict)
    _verifying: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def open(self, port: int = 0) -> AsyncIterator[Self]:
        """Run the server; requests and subscribers persist between runs."""
        app = web.Application()
        app.router.add_post("/", self._on_request)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
            yield self
        finally:
            await self.settled()
            await runner.cleanup()

    async def settled(self) -> None:
        """Wait until all verifications are finished."""
        await asyncio.gather(*self._verifying)

    async def push(self, body: bytes, *, secret: str = "") -> list[int]:
        """Push ``body`` to all subscribers, signed with ``secret`` or else their own; return the HTTP statuses."""
        statuses = []
        async with aiohttp.ClientSession() as http:
            for callback, form in self.subscribed.items():
                key = (secret or form["hub.secret"]).encode()
                signature = f"sha256={hmac.new(key, body, hashlib.sha256).hexdigest()}"
                headers = {"X-Hub-Signature": signature, "Content-Type": "application/rss+xml"}
                async with http.post(callback, data=body, headers=headers) as answer:
                    statuses.append(answer.status)
        return statuses

    async def _on_request(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.asked.append(form)
        if not self.silent:
            task = asyncio.create_task(self._verify(form))
            self._verifying.add(task)
            task.add_done_callback(self._verifying.discard)
        return web.Response(status=202)

    async def _verify(self, form: dict[str, str]) -> None:
        callback, mode = form["hub.callback"], "denied" if self.denies else form["hub.mode"]
        query = {"hub.mode": mode, "hub.topic": form["hub.topic"]}
        if not self.denies:
            query |= {"hub.challenge": CHALLENGE, "hub.lease_seconds": str(self.lease_s)}
        async with aiohttp.ClientSession() as http, http.get(callback, params=query) as answer:
            agreed = (answer.status, await answer.text()) == (200, CHALLENGE)
        if agreed and mode == "subscribe":
            self.subscribed[callback] = form
        elif agreed or self.denies:
            self.subscribed.pop(callback, None)
