"""The console behind a real nginx or Caddy that terminates TLS, with the snippets of docs/proxy.md.

nginx at the root of a host name is part of every run; the others need the mark ``servers``.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import hdrs, web
from yarl import URL

from service.console.auth.authentication import SESSION_COOKIE
from service.console.auth.passwords import Passwords
from service.net.http_server import serve_http
from service.store import Store
from service.store.console.accounts import Account
from tests.support.console import console, logged_in, stranger
from tests.support.proxies import Kind, Proxy, reverse_proxy

PASSWORD = "correct horse battery"
ADAS, EVES = "127.0.0.8", "127.0.0.9"
BASE = "/coronet"


class Place(NamedTuple):
    """A kind of proxy, and the path under which it serves the console."""

    kind: Kind
    base: str


PLACES = [
    Place("nginx", ""),
    *(
        pytest.param(Place(*each), marks=pytest.mark.servers)
        for each in (("nginx", BASE), ("caddy", ""), ("caddy", BASE))
    ),
]


@asynccontextmanager
async def _proxied(store: Store, directory: Path, place: Place, **chosen: str) -> AsyncIterator[Proxy]:
    async with (
        console(store, trusted_proxies="127.0.0.1", console_base_path=place.base, **chosen) as (url, _),
        reverse_proxy(directory / "proxy", URL(url).port or 0, *place) as running,
    ):
        yield running


@pytest.fixture(params=PLACES, ids=lambda place: f"{place.kind}{place.base}")
def place(request: pytest.FixtureRequest) -> Place:
    chosen: Place = request.param
    return chosen


@pytest_asyncio.fixture
async def proxy(store: Store, tmp_path: Path, place: Place) -> AsyncIterator[Proxy]:
    async with _proxied(store, tmp_path, place, metrics_networks=ADAS) as running:
        yield running


@pytest.fixture
async def account(store: Store) -> Account:
    account = Account(await Passwords().hash(PASSWORD), 0.0)
    assert await store.accounts.change("ada", account, {})
    return account


@pytest.mark.usefixtures("account")
async def test_clients_behind_a_proxy_are_distinguished_by_forwarded_address(
    proxy: Proxy, place: Place, store: Store
) -> None:
    async with (
        stranger(proxy.url, address=EVES, trust=proxy.trust) as eve,
        stranger(proxy.url, address=ADAS, trust=proxy.trust) as ada,
    ):
        for number in range(5):
            eve.http.headers["X-Forwarded-For"] = f"192.0.2.{number}"  # the proxy appends the true one
            assert (await eve.post(f"{place.base}/login", name="ada", password="guess"))[0] == 401
        assert (await eve.post(f"{place.base}/login", name="ada", password=PASSWORD))[0] == 429
        assert await ada.post(f"{place.base}/login", name="ada", password=PASSWORD, next="/nodes") == (
            303,
            f"{place.base}/nodes",
        )
        assert (await ada.get(f"{place.base}/nodes"))[0] == 200
    (noted,), _ = await store.audit_log.page()
    (session,) = await store.sessions.all()
    assert (noted.deed.address, session.address) == (ADAS, ADAS)


@pytest.mark.usefixtures("account")
async def test_cookies_are_secure_and_forms_are_accepted_behind_tls(proxy: Proxy, place: Place, store: Store) -> None:
    async with stranger(proxy.url, trust=proxy.trust) as ada:
        sent = {"csrf": ada.csrf, "name": "ada", "password": PASSWORD}
        headers = {"Origin": proxy.url}
        async with ada.http.post(f"{place.base}/login", data=sent, headers=headers, allow_redirects=False) as answer:
            assert answer.status == 303
            assert answer.headers["Strict-Transport-Security"]
            assert all(cookie["secure"] for cookie in answer.cookies.values())
            assert SESSION_COOKIE in answer.cookies
        headers["Origin"] = proxy.url.replace("https", "http")
        async with ada.http.post(f"{place.base}/login", data=sent, headers=headers, allow_redirects=False) as answer:
            assert answer.status == 403
    async with logged_in(proxy.url, store, "bob", trust=proxy.trust) as bob:
        _, page = await bob.post(f"{place.base}/settings/accounts", name="cyd", role="viewer")
        link = unescape(page.partition('class="secret">')[2].partition("</code>")[0])
        assert link.startswith(f"{proxy.url}{place.base}/join?token=")
        async with bob.http.get(f"{place.base}/live", headers={"Accept": "text/event-stream"}) as events:
            assert await events.content.readline() == b"retry: 3000\n"


async def test_metrics_are_limited_to_networks_by_forwarded_address(proxy: Proxy, place: Place) -> None:
    async with (
        stranger(proxy.url, address=EVES, trust=proxy.trust) as eve,
        stranger(proxy.url, address=ADAS, trust=proxy.trust) as monitor,
    ):
        assert (await monitor.get(f"{place.base}/metrics"))[0] == 200
        assert (await eve.get(f"{place.base}/metrics"))[0] == 403
        eve.http.headers["X-Forwarded-For"] = ADAS
        assert (await eve.get(f"{place.base}/metrics"))[0] == 403
        eve.http.headers["Forwarded"] = f"for={ADAS}"  # a header that these proxies do not set, and remove
        assert (await eve.get(f"{place.base}/metrics"))[0] == 403


async def test_the_chat_websocket_requires_the_consoles_origin(store: Store, tmp_path: Path, place: Place) -> None:
    async def echo(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=["xmpp"])
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"echo {message.data}")
        return socket

    app = web.Application()
    app.router.add_get("/", echo)
    async with serve_http(app, "127.0.0.1", 0) as server:
        chat = server.url.replace("http", "ws")
        async with (
            _proxied(store, tmp_path, place, chat_websocket_url=chat) as proxy,
            logged_in(proxy.url, store, trust=proxy.trust) as ada,
        ):
            headers = {hdrs.ORIGIN: proxy.url}
            async with ada.http.ws_connect(f"{place.base}/chat/xmpp", protocols=["xmpp"], headers=headers) as socket:
                await socket.send_str("<hello/>")
                assert await socket.receive_str() == "echo <hello/>"
            headers = {hdrs.ORIGIN: "https://evil.example"}
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await ada.http.ws_connect(f"{place.base}/chat/xmpp", protocols=["xmpp"], headers=headers)
