"""Where hubs come to: they have us confirm what we asked for, and push what is new (W3C WebSub §5.3 and §7).

A hub proves itself twice: by the token in the URL, which only it was told, and by its signature of what it
pushes. Who does not know the token learns nothing; who cannot sign is thanked, and what they sent is ignored.
"""

import hmac
from typing import Final

from aiohttp import hdrs, web

from service.console.site import CLOCK, STORE
from service.feeds.websub import HubState, Intent, answered, named, signed
from service.store.websub import Push, fresh

PATH: Final = "/websub/{cid:[0-9a-f]{40}}/{token}"
LARGEST_PUSH_BYTES: Final = 5 * 1024 * 1024
"""As much as a poll would read."""

_RETRY_AFTER_S = 60


async def verify(request: web.Request) -> web.Response:
    """Confirm that we asked the hub for this, by repeating its challenge, or hear that it denies it."""
    state = await _subscription(request)
    if state is None:
        return web.Response(status=404)
    query = request.query
    intent = Intent(*(query.get(f"hub.{name}", "") for name in ("mode", "topic", "lease_seconds")))
    agreed, after = answered(state, intent, request.app[CLOCK].wall_s(), fresh())
    if not agreed:
        return web.Response(status=404)
    if not await request.app[STORE].websub.swap(request.match_info["cid"], state, after):
        return _later(503)
    return web.Response(text=query.get("hub.challenge", ""))


async def receive(request: web.Request) -> web.Response:
    """Hand what the hub pushed to the channel's owner."""
    store, cid = request.app[STORE], request.match_info["cid"]
    state = await _subscription(request)
    if state is None:
        return web.Response(status=404)
    if not await store.websub.may_push(cid):
        return _later(429)
    channel = await store.channels.get(cid)
    if channel is None or channel.dormant:
        state = await store.websub.change(cid, lambda state: named(state, (), "", fresh()))
    if state is None or state.status == "leaving":
        return web.Response(status=410)
    body = await request.read()
    if signed(state.secret, request.headers.get("X-Hub-Signature", ""), body):
        await store.websub.keep(cid, Push(body, request.headers.get(hdrs.CONTENT_TYPE, "")))
        await store.requests.pushed(cid)
    return web.Response(status=202)


async def _subscription(request: web.Request) -> HubState | None:
    """Return the subscription that the path's token belongs to; None if there is none."""
    state = await request.app[STORE].websub.get(request.match_info["cid"])
    token = request.match_info["token"].encode(errors="replace")
    return state if state and hmac.compare_digest(state.token.encode(), token) else None


def _later(status: int) -> web.Response:
    return web.Response(status=status, headers={hdrs.RETRY_AFTER: str(_RETRY_AFTER_S)})
