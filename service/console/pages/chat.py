"""The page Chat: a real XMPP client in the browser, for who tries Coronet out (`coronet up`), logged in already.

The browser speaks XMPP over a WebSocket of this console (RFC 7395), which hands every frame on to the XMPP server
on this machine, and back: so the page needs nothing but its own origin.
"""

import asyncio
import contextlib
from typing import Final

from aiohttp import ClientWebSocketResponse, WSMsgType, hdrs, web

from service.console.auth.middleware import our_origins
from service.console.rendering import SETTINGS, render
from service.errors import Unreachable
from service.net.internal_clients import connect_websocket

SUBPROTOCOL: Final = "xmpp"
LARGEST_FRAME_BYTES: Final = 512 * 1024

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; form-action 'self'; font-src 'self'; "
    "style-src 'self' 'unsafe-inline'; "  # the client sets styles of its own elements
    "img-src 'self' data: blob:; base-uri 'none'; frame-ancestors 'none'"
)

Socket = web.WebSocketResponse | ClientWebSocketResponse


async def page(request: web.Request) -> web.Response:
    """Show the client, logged in as the trial's first account."""
    settings = request.app[SETTINGS]
    if not settings.chat_websocket_url:
        raise web.HTTPNotFound(text="There is a chat page in a trial only: start one with `coronet up`.")
    response = render(
        request,
        "chat.html",
        jid=settings.chat_jid,
        password=settings.chat_password.get_secret_value(),
        bot_jid=settings.xmpp_jid,
    )
    response.headers["Content-Security-Policy"] = _POLICY
    return response


async def socket(request: web.Request) -> web.StreamResponse:
    """Hand frames on between the browser and the XMPP server until either goes."""
    url = request.app[SETTINGS].chat_websocket_url
    if not url:
        raise web.HTTPNotFound
    if request.headers.get(hdrs.ORIGIN) not in our_origins(request):
        raise web.HTTPForbidden(text="The request did not come from this console's own pages.")
    try:
        async with connect_websocket(url, SUBPROTOCOL, LARGEST_FRAME_BYTES) as server:
            browser = web.WebSocketResponse(protocols=[SUBPROTOCOL], max_msg_size=LARGEST_FRAME_BYTES, heartbeat=30)
            await browser.prepare(request)
            await _together(browser, server)
            await browser.close()
            return browser
    except Unreachable as error:
        raise web.HTTPBadGateway(text=f"The XMPP server does not answer: {error}. Is it running?") from error


async def _together(browser: Socket, server: Socket) -> None:
    ways = [asyncio.create_task(_hand_on(*way)) for way in ((browser, server), (server, browser))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _hand_on(sender: Socket, receiver: Socket) -> None:
    with contextlib.suppress(ConnectionError):
        async for frame in sender:
            if frame.type is not WSMsgType.TEXT:
                return
            await receiver.send_str(frame.data)
