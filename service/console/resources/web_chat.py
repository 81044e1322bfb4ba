"""The Chat page: an XMPP client in the browser, logged in to an account of the demo installation (`coronet up`).

The browser uses XMPP over WebSocket (RFC 7395). The console forwards the WebSocket connection to the XMPP server on
this machine, so the page connects only to its own origin.
"""

import contextlib
from typing import Final

from aiohttp import ClientWebSocketResponse, WSMsgType, web

from service.asyncio_tasks import run_until_one_ends
from service.console.app_keys import SETTINGS
from service.console.auth.csrf import check_origin
from service.console.page_rendering import render
from service.errors import Unreachable
from service.net.internal_clients import connect_websocket

SUBPROTOCOL: Final = "xmpp"
MAX_FRAME_BYTES: Final = 512 * 1024

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; form-action 'self'; font-src 'self'; "
    "style-src 'self' 'unsafe-inline'; "  # the XMPP client uses inline styles
    "img-src 'self' data: blob:; base-uri 'none'; frame-ancestors 'none'"
)

Socket = web.WebSocketResponse | ClientWebSocketResponse


async def page(request: web.Request) -> web.Response:
    """Show the XMPP client, logged in to the first account that `coronet up` created."""
    if not request.app[SETTINGS].chat_websocket_url:
        raise web.HTTPNotFound(text="The chat page is only available with `coronet up`.")
    response = render(request, "chat.html")
    response.headers["Content-Security-Policy"] = _POLICY
    return response


async def proxy_socket(request: web.Request) -> web.StreamResponse:
    """Forward WebSocket messages between the browser and the XMPP server until either side closes the connection."""
    url = request.app[SETTINGS].chat_websocket_url
    if not url:
        raise web.HTTPNotFound
    check_origin(request)
    try:
        async with connect_websocket(url, SUBPROTOCOL, MAX_FRAME_BYTES) as server:
            browser = web.WebSocketResponse(protocols=[SUBPROTOCOL], max_msg_size=MAX_FRAME_BYTES, heartbeat=30)
            await browser.prepare(request)
            await run_until_one_ends(_forward(browser, server), _forward(server, browser))
            await browser.close()
            return browser
    except Unreachable as error:
        raise web.HTTPBadGateway(text=f"The XMPP server does not answer: {error}. Is it running?") from error


async def _forward(sender: Socket, receiver: Socket) -> None:
    with contextlib.suppress(ConnectionError):
        async for frame in sender:
            if frame.type is not WSMsgType.TEXT:
                return
            await receiver.send_str(frame.data)
