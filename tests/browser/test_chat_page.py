"""The page Chat in a real browser, on the whole product: subscribe, and be told."""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from service.console.auth.first_account import create_setup_link
from service.embedded.sample_publisher import SamplePublisher
from service.settings import Settings
from service.store import open_store
from tests.support.browser import create_account_and_log_in, violations
from tests.support.product_process import Product, running

pytestmark = pytest.mark.e2e

_TOLD_WITHIN_MS = 40_000


@pytest_asyncio.fixture
async def product(tmp_path: Path) -> AsyncIterator[Product]:
    async with running(tmp_path / "up", "--workers", "1", "--poll-interval", "2") as started:
        yield started


async def test_the_chat_page_subscribes_and_gets_a_notification(
    product: Product, browser: Browser, tmp_path: Path
) -> None:
    ready = product.ready
    store = open_store(Settings(redis_url=ready["redis_url"]))
    try:
        link = await create_setup_link(store, ready["console_url"])
    finally:
        await store.close()
    assert link is not None
    complaints: list[str] = []
    elsewhere: list[str] = []
    async with SamplePublisher(tmp_path) as publisher:
        await publisher.publish("Before")
        page = await browser.new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: elsewhere.append(request.url) if "127.0.0.1" not in request.url else None)
        await create_account_and_log_in(page, link)
        await page.get_by_role("link", name="Chat").click()
        box = page.locator("textarea.chat-textarea")
        await expect(box).to_be_visible(timeout=_TOLD_WITHIN_MS)
        await box.fill(publisher.feed_url())
        await box.press("Enter")
        await expect(page.locator("#chat")).to_contain_text("Before", timeout=_TOLD_WITHIN_MS)
        await publisher.publish("Breaking news")
        await expect(page.locator("#chat")).to_contain_text("Breaking news", timeout=_TOLD_WITHIN_MS)
        # What the client draws is its makers'; the frame is ours.
        assert await violations(page, but="#conversejs") == []
        cookies = {cookie["name"]: cookie["value"] for cookie in await page.context.cookies()}
        await _no_other_page_may_open_the_socket(f"{ready['console_url']}/chat/xmpp", cookies)
    assert (complaints, elsewhere) == ([], [])


async def _no_other_page_may_open_the_socket(url: str, cookies: dict[str, str]) -> None:
    jar = aiohttp.CookieJar(unsafe=True)
    elsewhere = {"Origin": "https://elsewhere.example"}
    async with (
        aiohttp.ClientSession(cookies=cookies, cookie_jar=jar) as session,
        session.get(url, headers=elsewhere) as refused,
        aiohttp.ClientSession() as stranger,
        stranger.get(url, allow_redirects=False) as closed,
    ):
        assert (refused.status, closed.status) == (403, 303)
