"""A running console, visitors of it, and workers and bots that answer its requests."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from service.asyncio_tasks import cancel_and_wait
from service.console.auth.authentication import FORM_COOKIE, SESSION_COOKIE
from service.console.auth.csrf import csrf_token
from service.console.main import make_app
from service.corona.optimizer.poll_explanation import BindingConstraint, PollExplanation
from service.errors import NoWorker, to_fault
from service.model import ChannelId, NodeId, NodeInfo
from service.net.http_server import serve_http
from service.overlay.ring import BITS, to_hex
from service.settings import load
from service.store import Store
from service.store.client import keys
from service.store.console.accounts import Account, Role
from service.store.coordination.bot_requests import (
    DryRunReply,
    DryRunRequest,
    MessagePreviewReply,
    MessagePreviewRequest,
)
from service.store.coordination.worker_requests import (
    ContentRequest,
    DirectoriesRequest,
    ErrorReply,
    ExplanationReply,
    ExplanationRequest,
    LookupRequest,
    MoveRequest,
    OutlineRequest,
    PollRequest,
    ProbeRequest,
    ProgressReply,
    ShareRequest,
    WorkerReply,
    WorkerRequest,
)
from tests.support.poll_explanations import explanation
from tests.support.waiting import until

TOKEN = "an-api-token-for-tests"

Asked = (
    ProbeRequest
    | MoveRequest
    | PollRequest
    | OutlineRequest
    | LookupRequest
    | DirectoriesRequest
    | ShareRequest
    | ContentRequest
)
"""The requests that a scripted worker answers, besides requests to explain the polling of a channel."""


@asynccontextmanager
async def console(store: Store, public_url: str = "", **chosen: object) -> AsyncIterator[tuple[str, web.Application]]:
    """Run a console on a free port with the settings ``chosen``; yield its URL and its application."""
    settings = load({}, console_admin_token=TOKEN, console_public_url=public_url, **chosen)
    app = make_app(settings, store)
    async with serve_http(app, "127.0.0.1", 0, trusted_proxies=settings.trusted_proxies) as server:
        yield server.url, app


@dataclass
class Visitor:
    """A client of the console. ``csrf`` is the CSRF token in the forms of its pages."""

    http: aiohttp.ClientSession
    origin: str
    csrf: str

    async def get(self, path: str) -> tuple[int, str]:
        async with self.http.get(path, allow_redirects=False) as answer:
            return answer.status, await answer.text()

    async def post(self, path: str, **fields: str) -> tuple[int, str]:
        """Submit a form like a page of the console; return the status and the redirect's target or the text."""
        sent = {"csrf": self.csrf, **fields}
        async with self.http.post(path, data=sent, headers={"Origin": self.origin}, allow_redirects=False) as answer:
            return answer.status, answer.headers.get("Location") or await answer.text()


@asynccontextmanager
async def visitor(
    url: str, cookie: str, value: str, *, address: str = "127.0.0.1", trust: ssl.SSLContext | None = None
) -> AsyncIterator[Visitor]:
    # Only an unsafe jar keeps cookies for an IP address; the console listens on 127.0.0.1.
    jar = aiohttp.CookieJar(unsafe=True)
    jar.update_cookies({cookie: value}, URL(url))
    connector = aiohttp.TCPConnector(local_addr=(address, 0), ssl=trust or True)
    async with aiohttp.ClientSession(url, cookie_jar=jar, connector=connector) as http:
        yield Visitor(http, url, csrf_token(value))


@asynccontextmanager
async def stranger(
    url: str, *, address: str = "127.0.0.1", trust: ssl.SSLContext | None = None
) -> AsyncIterator[Visitor]:
    """Yield a visitor who is not logged in, with this loopback address."""
    async with visitor(url, FORM_COOKIE, "a-form-cookie", address=address, trust=trust) as somebody:
        yield somebody


async def make_account(store: Store, name: str = "ada", role: Role = Role.ADMIN) -> Account:
    """Create an account that has no valid password."""
    account = Account("x", 1_000.0, role)
    assert await store.accounts.change(name, account, await store.accounts.all())
    return account


@asynccontextmanager
async def logged_in(
    url: str, store: Store, name: str = "ada", role: Role = Role.ADMIN, trust: ssl.SSLContext | None = None
) -> AsyncIterator[Visitor]:
    """Yield a visitor who is logged in to a new account."""
    token = await store.sessions.open(name, await make_account(store, name, role), "192.0.2.7", "A browser")
    async with visitor(url, SESSION_COOKIE, token, trust=trust) as somebody:
        yield somebody


@asynccontextmanager
async def rehearsing(
    store: Store, answer: Callable[[DryRunRequest | MessagePreviewRequest], DryRunReply | MessagePreviewReply]
) -> AsyncIterator[None]:
    """Run a bot that only replies to requests of the console, by ``answer``."""

    async def answering() -> None:
        while True:
            question = await store.bot_requests.next_request()
            if question is not None:
                await store.bot_requests.reply(question, answer(question.body))

    async def connected() -> bool:
        return bool(await store.redis.call("EXISTS", keys.BOT_AVAILABLE))

    task = asyncio.create_task(answering())
    try:
        await until(connected, "the bot is there")
        yield
    finally:
        await cancel_and_wait(task)
        await store.redis.call("DEL", keys.BOT_AVAILABLE)


def explained(cid: ChannelId, polling_set: Sequence[NodeId], *, ring_nodes: int, now_s: float = 0.0) -> PollExplanation:
    """Return the explanation for a channel that each node of ``polling_set`` polls every 10 minutes."""
    return explanation(cid, polling_set, 0.0, 600.0, BindingConstraint.NODES, now_s=now_s, ring_nodes=ring_nodes)


@asynccontextmanager
async def worker(
    store: Store,
    answer: Callable[[Asked], WorkerReply],
    *,
    name: str = "w1",
    metrics_url: str = "",
    place: float = 0,
    reason: PollExplanation | None = None,
    steps: Sequence[ProgressReply] = (),
) -> AsyncIterator[NodeInfo]:
    """Run a node that only replies to requests of bots and the console, by ``answer``.

    ``place`` is the node's position in the ring, from 0 to 1. ``reason`` is the reply to requests to explain polling;
    if it is None, the reply is the error NoWorker. The progress replies ``steps`` precede every reply.
    """

    def explained() -> WorkerReply:
        return ExplanationReply(reason) if reason else ErrorReply(to_fault(NoWorker("It is not settled yet.")))

    me = await store.ring.join(name, metrics_url, 600.0, lambda _: to_hex(int(place * (1 << BITS))))

    async def answering() -> None:
        after = "0"
        while True:
            letters, after = await store.node_inboxes.read(me.id, after)
            for letter in letters:
                if letter.kind != "ask":
                    continue
                ask = msgspec.msgpack.decode(letter.payload, type=WorkerRequest)
                assert ask.until_s > time.time()
                for step in steps:
                    await store.worker_requests.reply(ask, step)
                await store.worker_requests.reply(
                    ask, explained() if isinstance(ask.body, ExplanationRequest) else answer(ask.body)
                )

    task = asyncio.create_task(answering())
    try:
        yield me
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
