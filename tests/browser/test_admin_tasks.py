"""Common tasks of admins: handle a failing channel, suspend and delete a person."""

from playwright.async_api import Browser, expect

from service.model import PollResult
from service.store import Store
from service.store.client import keys
from service.store.coordination.worker_requests import PollReply, ProgressReply
from tests.support.browser import enter_as
from tests.support.channels import make_channel, polled
from tests.support.console import console, logged_in, worker


async def test_a_failing_channel_is_found_and_polled_again(store: Store, browser: Browser) -> None:
    channel = await make_channel(store, listed=True)
    await make_channel(store, "https://example.net/fine", listed=True)
    await polled(store, channel.id, PollResult("0" * 40, 1.0, "bad-status", 404, "It said 404."))
    well = PollReply(PollResult("0" * 40, 2.0, "unchanged", 304))
    steps = (
        ProgressReply("Asks example.org for the whole document.", 0.1),
        ProgressReply("example.org answered 304, no body.", 0.2),
    )
    async with console(store) as (url, _), logged_in(url, store) as ada, worker(store, lambda _: well, steps=steps):
        page = await browser.new_page()
        await enter_as(ada, page)
        await page.goto(url)
        await page.get_by_role("link", name="1 failing").click()
        await expect(page.get_by_text("1 to 1 of 1 channel (filtered from 2)")).to_be_visible()
        await page.get_by_role("link", name="A feed").click()
        await expect(page.get_by_text("It said 404.")).to_be_visible()
        await page.get_by_role("button", name="Poll now").click()
        await expect(page.locator("#trace li")).to_have_count(4)
        await expect(page.locator("#trace li").last).to_contain_text("Unchanged")


async def test_a_person_is_found_suspended_and_deleted(store: Store, browser: Browser) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe("mallory@example.org", channel.id)
    async with console(store) as (url, _), logged_in(url, store) as ada:
        page = await browser.new_page()
        await enter_as(ada, page)
        await page.goto(f"{url}/people")
        await page.get_by_label("Search addresses").fill("mallory")
        await page.keyboard.press("Enter")
        await page.get_by_role("link", name="mallory@example.org").click()
        await page.get_by_role("button", name="Suspend").click()
        await expect(page.get_by_text("the bot does not answer them")).to_be_visible()
        await page.get_by_role("link", name="Delete…").click()
        await expect(page.get_by_text("This ends 1 subscription")).to_be_visible()
        await page.get_by_role("button", name="Delete person").click()
        await expect(page.get_by_role("status")).to_contain_text("have been deleted")
    assert await store.people.get(keys.user_id("mallory@example.org")) is None
    assert await store.subscriptions.count(channel.id) == 0


async def test_the_overview_draws_charts(store: Store, browser: Browser) -> None:
    async with console(store) as (url, _), logged_in(url, store) as ada:
        page = await browser.new_page()
        await enter_as(ada, page)
        await page.goto(url)
        await expect(page.locator("#chart-polls canvas")).to_be_visible(timeout=20_000)
