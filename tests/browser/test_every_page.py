"""Every page is accessible, runs no foreign script, is small, and works without scripts."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, CDPSession, Page, ViewportSize

from service.model import Entry, PollResult
from service.store import Store
from service.store.coordination.worker_requests import ContentReply, ContentRequest, ProbeReply, WorkerReply
from tests.support.browser import COLOURS, enter_as, violations
from tests.support.channels import polled
from tests.support.console import Asked, Visitor, console, logged_in, worker
from tests.support.console_pages import HOSTILE, fill_every_page

LARGEST_BYTES = 150_000
"""Maximum transfer size of a page's first load."""
PHONE = ViewportSize(width=360, height=800)


def _answer(asked: Asked) -> WorkerReply:
    return (
        ContentReply(3, (Entry("k", HOSTILE, "", HOSTILE),), "near", 2, "south")
        if isinstance(asked, ContentRequest)
        else ProbeReply()
    )


@asynccontextmanager
async def _seen(store: Store) -> AsyncIterator[tuple[Visitor, str, list[str]]]:
    paths = await fill_every_page(store)
    async with (
        console(store) as (url, _),
        logged_in(url, store) as ada,
        worker(store, _answer, name="north"),
        worker(store, _answer, name="south", place=0.5),
    ):
        yield ada, url, paths


async def test_every_page_is_accessible_and_runs_no_foreign_script(store: Store, browser: Browser) -> None:
    found: list[str] = []
    async with _seen(store) as (ada, url, paths):
        # Colours that are on their way from one scheme to the other are neither's.
        page = await browser.new_page(reduced_motion="reduce")
        page.on("pageerror", lambda error: found.append(f"{page.url}: {error}"))
        page.on("console", lambda message: found.append(f"{page.url}: {message.text}"))
        await enter_as(ada, page)
        for path in paths:
            came = await page.goto(url + path, wait_until="domcontentloaded")
            assert came is not None
            assert came.status < 500, path
            found += [f"{path}: {wrong}" for wrong in await violations(page)]
            await page.emulate_media(color_scheme="dark")
            found += [f"{path} (dark): {wrong}" for wrong in await violations(page, COLOURS)]
            await page.emulate_media(color_scheme="light")
            assert await page.title() != "taken over"
    # The browser tells of the page that is not there.
    assert [wrong for wrong in found if "404 (Not Found)" not in wrong and "422" not in wrong] == []


async def test_every_page_fits_a_phone(store: Store, browser: Browser) -> None:
    async with _seen(store) as (ada, url, paths):
        page = await browser.new_page(viewport=PHONE)
        await enter_as(ada, page)
        wide = {}
        for path in paths:
            await page.goto(url + path, wait_until="domcontentloaded")
            wide[path] = await page.evaluate("document.documentElement.scrollWidth")
        assert {path: width for path, width in wide.items() if width > PHONE["width"]} == {}


async def test_every_page_loads_within_the_size_limit(store: Store, browser: Browser) -> None:
    async with _seen(store) as (ada, url, paths):
        context = await browser.new_context()
        await enter_as(ada, context)
        page = await context.new_page()
        wire = await context.new_cdp_session(page)
        await wire.send("Network.enable")
        await wire.send("Network.setCacheDisabled", {"cacheDisabled": True})
        heavy = {path: size for path in paths if (size := await _loaded_bytes(wire, page, url + path)) > LARGEST_BYTES}
        assert heavy == {}


async def _loaded_bytes(wire: CDPSession, page: Page, url: str) -> int:
    """Load a page without cache; return the number of bytes transferred."""
    sizes: list[int] = []

    def loaded(event: dict[str, int]) -> None:
        sizes.append(event["encodedDataLength"])

    wire.on("Network.loadingFinished", loaded)
    await page.goto(url, wait_until="load")
    wire.remove_listener("Network.loadingFinished", loaded)
    return sum(sizes)


async def test_every_page_works_without_scripts(store: Store, browser: Browser) -> None:
    async with _seen(store) as (ada, url, paths):
        context = await browser.new_context(java_script_enabled=False)
        await enter_as(ada, context)
        page = await context.new_page()
        for path in paths:
            await page.goto(url + path, wait_until="domcontentloaded")
            assert await page.locator("h1").is_visible(), path
            assert await page.locator("[hidden]:visible").count() == 0, path
        await page.goto(url + paths[5])
        await page.get_by_role("button", name="Unlist").click()
        await page.get_by_text("No, polled only while it has subscribers").wait_for()
        await page.get_by_label("Minimum interval").fill("2 h")
        await page.get_by_role("button", name="Set bounds").click()
        await page.get_by_text("At least 2 h between polls").wait_for()
        await page.get_by_role("button", name="Undo (restore: at least 10 min between polls)").click()
        await page.get_by_text("At least 10 min between polls").wait_for()
        await page.goto(f"{url}/channels")
        await page.get_by_label("A feed").first.check()
        await page.get_by_label("Pause duration").fill("2 h")
        await page.get_by_role("button", name="Pause").click()
        await page.get_by_text("Done: pause, 1 channel.").wait_for()
        await page.goto(f"{url}/policy")
        await page.get_by_label("Maximum delay").fill("30 min")
        await page.get_by_role("button", name="Preview effect").click()
        await page.get_by_role("button", name="Apply").click()
        await page.get_by_text("Applied").wait_for()
        await page.get_by_role("button", name="Undo last change").click()
        await page.get_by_text("maximum delay 1 h").first.wait_for()


async def test_live_updates_keep_details_open(store: Store, browser: Browser) -> None:
    async with _seen(store) as (ada, url, paths):
        page = await browser.new_page()
        await enter_as(ada, page)
        await page.goto(url + paths[5])
        first = page.locator("details.version", has_text="baseline without notification")
        last = page.locator("details.version", has_text="Version 2")
        await first.locator("summary").click()
        await last.locator("summary").click()
        await polled(store, paths[5].rpartition("/")[2], PollResult("0" * 40, time.time(), "tls-failed"))
        await page.locator("#live").dispatch_event("refresh")
        await page.get_by_text("TLS failed", exact=True).wait_for()
        assert await first.get_attribute("open") is not None
        assert await last.get_attribute("open") is None
