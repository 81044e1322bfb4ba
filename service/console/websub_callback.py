"""Where hubs come to: they have us confirm what we asked for, and push what is new (W3C WebSub §5.3 and §7).

A hub proves itself twice: by the token in the URL, which only it was told, and by its signature of what it
pushes. Who does not know the token learns nothing; who cannot sign is thanked, and what they sent is ignored.
"""

import asyncio
import contextlib
import hmac
from collections.abc import Iterator
from typing import Final

from aiohttp import hdrs, web

from service.console.rendering import CLOCK, STORE
from service.feeds.websub import HubState, IntentVerification, is_signature_valid, update_hub, verify_intent
from service.model import ChannelId
from service.store.channels.websub import Push, new_hub_secrets

PATH: Final = "/websub/{cid:[0-9a-f]{40}}/{token}"
LARGEST_PUSH_BYTES: Final = 5 * 1024 * 1024
"""As much as a poll would read."""

_RETRY_AFTER_S = 60
_LONGEST_TYPE_CHARS = 200
_BODY_WITHIN_S = 30.0
_MOST_ARRIVING_BYTES = 16 * 1024 * 1024
"""Of all pushes that are being read; who sends slowly has no more of it than what has come."""


class ArrivingPushes:
    """Bodies of pushes that are being read into this process's memory: one of a channel, and few bytes of all.

    ``size_bytes`` is what has come of them.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self._channels: set[ChannelId] = set()

    @contextlib.contextmanager
    def reserve(self, cid: ChannelId) -> Iterator[bool]:
        """Say whether a push of a channel may be read: not while another one of it is."""
        if cid in self._channels:
            yield False
            return
        self._channels.add(cid)
        try:
            yield True
        finally:
            self._channels.discard(cid)

    async def read(self, request: web.Request) -> bytes | None:
        """Read a body; None if it is too slow, or there are too many bytes of others just now.

        Raises ``web.HTTPRequestEntityTooLarge``.
        """
        received = bytearray()
        try:
            async with asyncio.timeout(_BODY_WITHIN_S):
                async for chunk in request.content.iter_any():
                    self.size_bytes += len(chunk)
                    received += chunk
                    if len(received) > LARGEST_PUSH_BYTES:
                        raise web.HTTPRequestEntityTooLarge(LARGEST_PUSH_BYTES, len(received))
                    if self.size_bytes > _MOST_ARRIVING_BYTES:
                        return None
            return bytes(received)
        except TimeoutError:
            return None
        finally:
            self.size_bytes -= len(received)


ARRIVING: Final = web.AppKey("arriving", ArrivingPushes)


async def verify(request: web.Request) -> web.Response:
    """Confirm that we asked the hub for this, by repeating its challenge, or hear that it denies it."""
    state = await _subscription(request)
    if state is None:
        return web.Response(status=404)
    query = request.query
    intent = IntentVerification(*(query.get(f"hub.{name}", "") for name in ("mode", "topic", "lease_seconds")))
    agreed, after = verify_intent(state, intent, request.app[CLOCK].wall_s(), new_hub_secrets())
    if not agreed:
        return web.Response(status=404)
    if not await request.app[STORE].websub.compare_and_set(request.match_info["cid"], state, after):
        return _later(503)
    return web.Response(text=query.get("hub.challenge", ""))


async def receive(request: web.Request) -> web.Response:
    """Hand what the hub pushed to the channel's owner. What cannot be read now, or is too much, becomes one poll."""
    store, cid = request.app[STORE], request.match_info["cid"]
    state = await _subscription(request)
    if state is None:
        return web.Response(status=404)
    if not await store.websub.take_push(cid):
        if await store.websub.take_excess_poll(cid):
            await store.websub.queue_push(cid, Push())
            await store.worker_requests.announce_push(cid)
        return _later(429)
    channel = await store.channels.get(cid)
    if channel is None or channel.dormant:
        state = await store.websub.change(cid, lambda state: update_hub(state, (), "", new_hub_secrets()))
    if state is None or state.status == "leaving":
        return web.Response(status=410)
    arriving = request.app[ARRIVING]
    with arriving.reserve(cid) as may_read:
        body = await arriving.read(request) if may_read else None
        if body is None:
            push = Push()
        elif is_signature_valid(state.secret, request.headers.get("X-Hub-Signature", ""), body):
            push = Push(body, request.headers.get(hdrs.CONTENT_TYPE, "")[:_LONGEST_TYPE_CHARS])
        else:
            return web.Response(status=202)
        await store.websub.queue_push(cid, push)
    await store.worker_requests.announce_push(cid)
    return web.Response(status=202)


async def _subscription(request: web.Request) -> HubState | None:
    """Return the subscription that the path's token belongs to; None if there is none."""
    state = await request.app[STORE].websub.get(request.match_info["cid"])
    token = request.match_info["token"].encode(errors="replace")
    return state if state and hmac.compare_digest(state.token.encode(), token) else None


def _later(status: int) -> web.Response:
    return web.Response(status=status, headers={hdrs.RETRY_AFTER: str(_RETRY_AFTER_S)})
