"""The console in a real browser: from the setup link to a channel that is watched."""

import re

from playwright.async_api import Browser, expect

from service.console.auth.first_account import create_setup_link
from service.feeds.canonical_urls import page_url
from service.model import Entry, PollResult
from service.store import Store
from service.store.coordination.worker_requests import (
    MoveReply,
    MoveRequest,
    PollReply,
    PollRequest,
    ProbeReply,
    ProbeRequest,
    WorkerReply,
)
from tests.support.browser import enter_as, violations
from tests.support.channels import make_channel, polled
from tests.support.console import Asked, console, logged_in, worker

PASSWORD = "correct horse battery"


async def test_an_admin_creates_an_account_with_the_setup_link_and_adds_a_channel(
    store: Store, browser: Browser
) -> None:
    channel = await make_channel(store, "https://example.org/feed.xml")
    await polled(store, channel.id, PollResult("0" * 40, 1.0, "unchanged", 304))
    complaints: list[str] = []

    def answer(body: Asked) -> WorkerReply:
        if isinstance(body, PollRequest):
            return PollReply(PollResult("0" * 40, 2.0, "unchanged", 304))
        return ProbeReply(channel, (Entry("k", "The latest entry", "https://example.org/1", "What it says."),))

    async with (
        console(store) as (url, _),
        worker(store, answer, name="north"),
        worker(store, answer, name="east", place=0.3),
        worker(store, answer, name="south-west", place=0.625),
    ):
        page = await browser.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        link = await create_setup_link(store, url)
        assert link is not None
        await page.goto(link)
        await page.get_by_label("Name").fill("ada")
        await page.get_by_label("Password", exact=False).first.fill(PASSWORD)
        await page.get_by_label("Repeat password").fill(PASSWORD)
        await page.get_by_role("button", name="Create account").click()

        await expect(page.get_by_role("status")).to_contain_text("Your account is ready")
        await page.get_by_label("Name").fill("ada")
        await page.get_by_label("Password").fill(PASSWORD)
        await page.keyboard.press("Enter")

        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        await page.get_by_role("link", name="Add channel").click()
        await page.get_by_label("URL").fill("example.org/feed.xml")
        await page.get_by_role("button", name="Preview").click()

        await expect(page.get_by_text("The latest entry")).to_be_visible()
        await page.get_by_role("button", name="Add channel").click()
        await expect(page.get_by_text("Yes, polled even without subscribers")).to_be_visible()
        await page.get_by_role("button", name="Poll now").click()
        await expect(page.locator("#trace")).to_contain_text("Unchanged")

        await page.get_by_role("link", name="Channels").click()
        await expect(page.get_by_role("link", name="A feed")).to_be_visible()
        await page.get_by_role("link", name="Nodes").click()
        await expect(page.locator("svg.ring")).to_contain_text("south-west")
        await expect(page).to_have_url(re.compile(r"/nodes$"))
    assert complaints == []


async def test_a_page_without_a_feed_is_added_with_a_selector(store: Store, browser: Browser) -> None:
    channel = await make_channel(store, page_url("https://example.org/prices", "main table"), kind="page")

    def answer(body: Asked) -> WorkerReply:
        named = isinstance(body, ProbeRequest) and (body.url, body.as_page) == (channel.url, True)
        return ProbeReply(channel, (Entry("k", "Prices", summary="Apples 1.20"),)) if named else ProbeReply(page=True)

    async with console(store) as (url, _), logged_in(url, store) as ada, worker(store, answer):
        page = await browser.new_page()
        await enter_as(ada, page)
        await page.goto(f"{url}/channels/add")
        await page.get_by_label("URL").fill("example.org/prices")
        await page.get_by_role("button", name="Preview").click()
        await page.get_by_label("Selector").fill("main  table")
        await page.get_by_role("button", name="Preview").click()
        await expect(page.get_by_text("Apples 1.20")).to_be_visible()
        assert await violations(page) == []
        await page.get_by_role("button", name="Add channel").click()
        await expect(page.get_by_text("Part of a page: main table")).to_be_visible()


async def test_a_selector_is_changed_after_a_preview(store: Store, browser: Browser) -> None:
    url = "https://example.org/prices"
    whole, part = await make_channel(store, url, kind="page"), page_url(url, "main table")
    channel = await make_channel(store, part, kind="page")

    def answer(body: Asked) -> WorkerReply:
        return (
            MoveReply()
            if isinstance(body, MoveRequest)
            else ProbeReply(channel, (Entry("k", "Prices", summary="Apples 1.20"),))
        )

    async with console(store) as (console_url, _), logged_in(console_url, store) as ada, worker(store, answer):
        page = await browser.new_page()
        await enter_as(ada, page)
        await page.goto(f"{console_url}/channels/{whole.id}")
        await page.get_by_label("Selector").fill("main table")
        await page.get_by_role("button", name="Preview").click()
        await expect(page.get_by_text("This is a preview; nothing has been changed yet.")).to_be_visible()
        assert await violations(page) == []
        await page.get_by_role("button", name="Change selector").click()
        await expect(page.get_by_text("Part of a page: main table")).to_be_visible()


async def test_live_updates_keep_the_focus(store: Store, browser: Browser) -> None:
    async with console(store) as (url, _), logged_in(url, store) as ada:
        page = await browser.new_page()
        await enter_as(ada, page)
        await page.goto(url)
        await expect(page.locator("#live")).to_contain_text("No worker is running")
        await page.get_by_role("link", name="Add the first channel").focus()
        async with worker(store, lambda _: ProbeReply()):
            await expect(page.locator("#live")).to_contain_text("Only one worker", timeout=15_000)
        await expect(page.get_by_role("link", name="Add the first channel")).to_be_focused()
