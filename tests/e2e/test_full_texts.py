"""A profile's feed is found by a rule, and its entries arrive with the articles on the pages to which they link."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web

from tests.support.feed_documents import item, rss
from tests.support.http_server import serving_locally
from tests.support.product_process import Product, running

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

ARTICLE = "The article says much more than the feed does, in sentences that are long enough. " * 8


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def product(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Product]:
    async with running(tmp_path_factory.mktemp("up"), "--workers", "2", "--poll-interval", "3") as started:
        yield started


class Site:
    """A site with a profile page, its feed, and one page for each entry."""

    def __init__(self) -> None:
        self.names = ["before"]
        self.missing: set[str] = set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info["path"]
        if path == "@someone":
            return web.Response(text="<html><body><p>A profile.</p></body></html>", content_type="text/html")
        if path == "@someone.rss":
            origin = str(request.url.origin())
            entries = [item(name, link=f"{origin}/{name}", summary=f"In short: {name}.") for name in self.names]
            return web.Response(body=rss(entries), content_type="application/rss+xml")
        if path not in self.names or path in self.missing:
            raise web.HTTPNotFound
        page = f"<html><body><nav>Menu</nav><article><h1>{path}</h1><p>{ARTICLE}</p></article></body></html>"
        return web.Response(text=page, content_type="text/html")


async def test_a_subscriber_gets_the_articles_and_another_one_the_texts_of_the_feed(product: Product) -> None:
    site = Site()
    async with serving_locally(site.answer) as url, product.chat(0) as alice, product.chat(1) as bob:
        for reader in (alice, bob):
            assert "I found a feed on that page" in await reader.say(f"subscribe {url}/@someone")
        assert "text: full" in await alice.say("set #1 text full")
        for name in ("one", "two", "three"):
            site.missing = {"two"}
            site.names = [name, *site.names]
            for reader in (alice, bob):
                message = await reader.wait_for(lambda message, name=name: f"Title {name}" in message.body)  # type: ignore[misc]  # a default
                has_article = reader is alice and name != "two"
                assert (ARTICLE.strip() in message.body) == has_article
                assert (f"In short: {name}." in message.body) != has_article
                assert "Menu" not in message.body
        titles = [message.body.splitlines()[1] for message in alice.notifications]
        assert titles == ["Title one", "Title two", "Title three"]
