"""Private feeds with real servers: logins get where they belong, and nowhere else."""

import asyncio
import contextlib
from base64 import b64encode
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from service.embedded.ports import LOOPBACK
from service.feeds.canonical_urls import SHARED, channel_id, protected_url
from service.store.client.keys import user_id
from tests.support.chat import Received
from tests.support.console import logged_in
from tests.support.feed_documents import item, rss
from tests.support.product_process import Product, running
from tests.support.redis_contents import redis_contents
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

PASSWORD, NEW_PASSWORD = "first-passw0rd", "second-passw0rd"
API_KEY, COOKIE, TOKEN = "an-api-k3y", "a-c00kie", "a-t0ken"
SECRETS = (
    *(PASSWORD, NEW_PASSWORD, API_KEY, COOKIE, TOKEN),
    *(b64encode(f"alice:{password}".encode()).decode() for password in (PASSWORD, NEW_PASSWORD)),
)


class GuardedPublisher:
    """A publisher whose feeds want different credentials. It keeps the headers of all requests."""

    def __init__(self) -> None:
        self.password = PASSWORD
        self.titles = ["Before"]
        self.url = ""
        self.elsewhere = ""
        self.requests: list[tuple[str, dict[str, str]]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.path, dict(request.headers)))
        login = f"Basic {b64encode(f'alice:{self.password}'.encode()).decode()}"
        wanted = {
            "/login": ("Authorization", login),
            "/token": ("Authorization", f"Bearer {TOKEN}"),
            "/cookie": ("Cookie", f"session={COOKIE}"),
            "/header": ("X-Api-Key", API_KEY),
            "/away": ("Authorization", login),
        }
        if request.path in wanted:
            name, value = wanted[request.path]
            if request.headers.get(name) != value:
                return web.Response(status=401, headers={"WWW-Authenticate": "Basic"})
        if request.path == "/away":
            raise web.HTTPMovedPermanently(f"{self.elsewhere}/public")
        feed = request.path[1:]
        entries = [
            item(f"{feed}-{number}", number=number, title=f"{title} at {feed}")
            for number, title in enumerate(self.titles)
        ]
        body = rss(entries, title=f"Feed of {feed}")
        return web.Response(body=body, content_type="application/rss+xml")


async def serve(publisher: GuardedPublisher) -> web.AppRunner:
    app = web.Application()
    app.router.add_get("/{path}", publisher.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, 0).start()
    publisher.url = f"http://{LOOPBACK}:{runner.addresses[0][1]}"
    return runner


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Product]:
    options = ("--workers", "2", "--no-sample-feeds", "--poll-interval", "1")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("CORONET_LOG_LEVEL", "debug")
        async with running(tmp_path_factory.mktemp("private"), *options) as started:
            yield started


@pytest_asyncio.fixture(loop_scope="module")
async def publisher() -> AsyncIterator[GuardedPublisher]:
    publisher, other = GuardedPublisher(), GuardedPublisher()
    runners = [await serve(publisher), await serve(other)]
    publisher.elsewhere, other.titles = other.url, publisher.titles
    yield publisher
    for runner in runners:
        await runner.cleanup()
    assert not [secret for secret in SECRETS if secret in repr(other.requests)]


def contains(text: str, message: Received) -> bool:
    return text in message.body


def files_with_secrets(directory: Path) -> list[str]:
    """Return the files of the product that contain a secret. The XMPP server's, which keeps messages, are left out."""
    found = []
    for path in directory.rglob("*"):
        if path.is_file() and "prosody" not in path.parts:
            content = path.read_bytes()
            found += [f"{path}: {secret}" for secret in SECRETS if secret.encode() in content]
    return found


async def test_each_kind_of_login_works_and_no_secret_is_kept_or_shown(
    product: Product, publisher: GuardedPublisher
) -> None:
    logins = {
        "login": f"login alice {PASSWORD}",
        "token": f"token {TOKEN}",
        "cookie": f'cookie "session={COOKIE}"',
        "header": f"header X-Api-Key: {API_KEY}",
        "away": f"login alice {PASSWORD}",
    }
    shown: list[str] = []
    async with product.chat(0) as alice, product.chat(1) as bob:
        refused = await bob.say(f"subscribe {publisher.url}/login")
        assert "401" in refused
        assert "login NAME PASSWORD" in refused
        assert "refused your login" in await bob.say(f"subscribe {publisher.url}/login login alice wrong-one")
        for path, login in logins.items():
            answer = await alice.say(f"subscribe {publisher.url}/{path} {login}")
            assert "Before" in answer, path
            assert "stored encrypted" in answer, path
        publisher.titles.append("Breaking news")
        for path in logins:
            news = f"Breaking news at {'public' if path == 'away' else path}"
            await alice.wait_for(partial(contains, news))
        listed = await alice.say("list")
        assert f"{publisher.url}/token" in listed
        assert "login=" not in listed
        exported = await alice.say("export")
        assert f'xmlUrl="{publisher.url}/login"' in exported
        assert "login=" not in exported
        assert "Feed of" not in await bob.say("find feed")
        shown += [message.body for message in (*alice.received, *bob.received)]
        shown += await console_texts(product, alice.jid)
        async with product.store() as store:
            stored = (await redis_contents(store)).values()
        assert not [secret for secret in SECRETS if any(secret.encode() in value for value in stored)]
        assert not [secret for secret in SECRETS if any(secret in text for text in shown)]
        assert files_with_secrets(product.directory) == []


async def console_texts(product: Product, jid: str) -> list[str]:
    """Return the pages and API documents of the console about channels, the person and the audit log."""
    url, token = product.ready["console_url"], product.ready["admin_token"]
    texts = []
    async with product.store() as store:
        cids = [subscription.channel for subscription in await store.subscriptions.of_user(jid)]
        paths = [
            *("/log", "/channels", "/channels?q=login", f"/people/{user_id(jid)}", "/hosts", "/delivery"),
            *(f"/channels/{cid}{end}" for cid in cids for end in ("", "/versions", "/content")),
        ]
        async with logged_in(url, store) as ada:
            for path in paths:
                status, text = await ada.get(path)
                assert status == 200, path
                texts.append(text)
        paths = [
            "log",
            "channels",
            "channels.opml",
            *(f"channels/{cid}{end}" for cid in cids for end in ("", "/content")),
        ]
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http:
            for path in paths:
                async with http.get(f"{url}/api/v1/{path}") as answer:
                    assert answer.status == 200, path
                    texts.append(await answer.text())
    return texts


async def test_a_changed_password_is_reported_once_and_a_new_one_replaces_it(
    product: Product, publisher: GuardedPublisher
) -> None:
    url = f"{publisher.url}/login"
    async with product.chat(2) as carol:
        await carol.say(f"subscribe {url} login alice {PASSWORD}")
        publisher.password = NEW_PASSWORD
        told = await carol.wait_for(partial(contains, "refused your login"), 60)
        assert f"subscribe {url} login NAME PASSWORD" in told.body
        async with product.store() as store:
            (subscription,) = await store.subscriptions.of_user(carol.jid)
            for _ in range(2):
                await store.worker_requests.poll_now(subscription.channel)
            assert "already subscribed" in await carol.say(f"subscribe {url} login alice {NEW_PASSWORD}")
            await carol.wait_for(partial(contains, "is back"), 60)
            assert sum("refused your login" in message.body for message in carol.notifications) == 1
            publisher.titles.append("News after the change")
            await carol.wait_for(partial(contains, "News after the change"))
            assert "Unsubscribed" in await carol.say(f"unsubscribe {url}")
            assert await store.channels.get(subscription.channel) is None
    assert files_with_secrets(product.directory) == []


async def test_an_admin_shares_a_private_feed_with_everyone(product: Product, publisher: GuardedPublisher) -> None:
    url, token = product.ready["console_url"], product.ready["admin_token"]
    body = {"url": f"{publisher.url}/header", "credential": f"header X-Api-Key: {API_KEY}"}
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http:
        async with http.post(f"{url}/api/v1/channels", json=body) as answer:
            assert answer.status == 201
            created = await answer.json()
        async with http.get(f"{url}/api/v1/log") as answer:
            assert API_KEY not in await answer.text()
    assert created["channel"]["id"] == channel_id(protected_url(body["url"], SHARED))
    async with product.chat(3) as dave:
        assert "Before" in await dave.say(f"subscribe {body['url']}")
        publisher.titles.append("Shared news")
        await dave.wait_for(partial(contains, "Shared news"))
    assert files_with_secrets(product.directory) == []


async def test_a_process_that_dies_while_a_login_is_stored_leaves_no_secret(
    product: Product, publisher: GuardedPublisher
) -> None:
    async with product.chat(4) as erin:
        saying = asyncio.create_task(erin.say(f"subscribe {publisher.url}/token token {TOKEN}", 60))
        await until(lambda: asyncio.sleep(0, bool(publisher.requests)), "the publisher was asked")
        await product.kill("bot")
        assert "Feed of token" in await saying

        async def is_answered() -> bool:
            with contextlib.suppress(TimeoutError):
                return "Feed of token" in await erin.say("list", 2)
            return False

        # The first answer may be from before the kill. What the next test sends to a bot that is offline is refused.
        await until(is_answered, "the bot is online again", within_s=60)
    assert files_with_secrets(product.directory) == []
