"""WebSub callback: hubs verify subscriptions and push new content here (W3C WebSub §5.3 and §7).

The secret token in the callback URL authenticates a hub. For pushes, the signature of the body is checked as well. A
request with a wrong token is answered with 404. A push with a wrong signature is answered with 202 but ignored (§7.1).
"""

import asyncio
import hmac
import time
from typing import Final

from aiohttp import hdrs, web

from service.console.app_keys import STORE
from service.feeds.websub_protocol import HubState, IntentVerification, is_signature_valid, update_hub, verify_intent
from service.model import ChannelId
from service.store.channels.websub_store import Push, new_hub_secrets

PATH: Final = "/websub/{cid:[0-9a-f]{40}}/{token}"
LARGEST_PUSH_BYTES: Final = 5 * 1024 * 1024
"""Maximum size of a pushed document, the same as of a polled one."""

_RETRY_AFTER_S = 60
_MAX_MEDIA_TYPE_CHARS = 200
_BODY_TIMEOUT_S = 30.0
_MAX_TOTAL_BYTES = 16 * 1024 * 1024
"""Maximum total size of all push bodies in memory. Only received bytes count, so slow senders do not block others."""


class PushReader:
    """Reads pushed content into memory, one push at a time per channel.

    ``size_bytes`` is the total size of all bodies that are being read. It is limited to ``_MAX_TOTAL_BYTES``.
    """

    def __init__(self) -> None:
        self.size_bytes = 0
        self._channels: set[ChannelId] = set()

    async def read(self, request: web.Request, cid: ChannelId) -> bytes | None:
        """Return the body of a push to the channel ``cid``, or None if it cannot be read now.

        The result is None in three cases: another push to the channel is being read, the sender takes too long, or all
        bodies in memory together would exceed ``_MAX_TOTAL_BYTES``. Raises ``web.HTTPRequestEntityTooLarge`` if the
        body is larger than ``LARGEST_PUSH_BYTES``.
        """
        if cid in self._channels:
            return None
        self._channels.add(cid)
        received = bytearray()
        try:
            async with asyncio.timeout(_BODY_TIMEOUT_S):
                async for chunk in request.content.iter_any():
                    self.size_bytes += len(chunk)
                    received += chunk
                    if len(received) > LARGEST_PUSH_BYTES:
                        raise web.HTTPRequestEntityTooLarge(LARGEST_PUSH_BYTES, len(received))
                    if self.size_bytes > _MAX_TOTAL_BYTES:
                        return None
            return bytes(received)
        except TimeoutError:
            return None
        finally:
            self.size_bytes -= len(received)
            self._channels.discard(cid)


PUSH_READER: Final = web.AppKey("push reader", PushReader)


async def verify(request: web.Request) -> web.Response:
    """Answer a hub's verification of intent by echoing the hub's challenge (W3C WebSub §5.3).

    If the hub reports that it has denied the subscription (§5.2), record the denial.
    """
    state = await _subscription(request)
    if state is None:
        return web.Response(status=404)
    query = request.query
    intent = IntentVerification(*(query.get(f"hub.{name}", "") for name in ("mode", "topic", "lease_seconds")))
    agreed, after = verify_intent(state, intent, time.time(), new_hub_secrets())
    if not agreed:
        return web.Response(status=404)
    if not await request.app[STORE].websub.compare_and_set(request.match_info["cid"], state, after):
        return _retry_later(503)
    return web.Response(text=query.get("hub.challenge", ""))


async def receive(request: web.Request) -> web.Response:
    """Queue content that a hub has pushed, and notify the worker that owns the channel.

    If the push exceeds a limit, drop its content and request a poll instead.
    """
    store, cid = request.app[STORE], request.match_info["cid"]
    state = await _subscription(request)
    if state is None:
        return web.Response(status=404)
    if not await store.websub.count_push(cid):
        if await store.websub.count_excess_poll(cid):
            await store.websub.queue_push(cid, Push())
            await store.worker_requests.announce_push(cid)
        return _retry_later(429)
    channel = await store.channels.get(cid)
    if channel is None or channel.dormant:
        state = await store.websub.change(cid, lambda state: update_hub(state, (), "", new_hub_secrets()))
    if state is None or state.status == "leaving":
        return web.Response(status=410)
    body = await request.app[PUSH_READER].read(request, cid)
    if body is None:
        push = Push()
    elif is_signature_valid(state.secret, request.headers.get("X-Hub-Signature", ""), body):
        push = Push(body, request.headers.get(hdrs.CONTENT_TYPE, "")[:_MAX_MEDIA_TYPE_CHARS])
    else:
        return web.Response(status=202)
    await store.websub.queue_push(cid, push)
    await store.worker_requests.announce_push(cid)
    return web.Response(status=202)


async def _subscription(request: web.Request) -> HubState | None:
    """Return the state of the hub subscription for the channel named in the request's path.

    The result is None if the channel has no hub subscription, or if the secret token in the path is wrong.
    """
    state = await request.app[STORE].websub.get(request.match_info["cid"])
    token = request.match_info["token"].encode(errors="replace")
    return state if state and hmac.compare_digest(state.token.encode(), token) else None


def _retry_later(status: int) -> web.Response:
    return web.Response(status=status, headers={hdrs.RETRY_AFTER: str(_RETRY_AFTER_S)})
