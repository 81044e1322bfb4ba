"""Every page is accessible, runs no foreign script, is small, and works without scripts."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, CDPSession, Page, ViewportSize

from service.corona.fleet_policy import ChannelBounds, FleetObjective, Goal
from service.feeds.entries.version_parts import split_version
from service.feeds.urls import channel_id
from service.model import Change, Channel, Entry, PollResult, Validators
from service.store import Store
from service.store.channels.channel_records import Snapshot
from service.store.client import keys
from service.store.coordination.request_budgets import HostBlock
from service.store.coordination.requests import ContentReply, ContentRequest, ProbeReply, WorkerReply
from tests.support.browser import COLOURS, enter_as, violations
from tests.support.channels import change, make_channel, polled, register_names
from tests.support.console import Asked, Visitor, console, logged_in, worker

HOSTILE = "<script>document.title = 'taken over'</script><img src=x onerror=alert(1)>"
LARGEST_BYTES = 150_000
"""Maximum transfer size of a page's first load."""
PHONE = ViewportSize(width=360, height=800)


async def _full(store: Store) -> list[str]:
    """Fill the store so that every page has content; return the paths of all pages."""
    now_s = time.time()
    good = await make_channel(store, "https://example.org/feed", listed=True)
    failing = await make_channel(store, "https://example.net/" + "long" * 60, listed=True)
    hostile = Channel(channel_id("https://example.com/x"), "https://example.com/x", created_s=now_s, listed=True)
    await store.channels.create(
        hostile, Snapshot(Validators(), b"", HOSTILE, ""), [Entry("k", HOSTILE, "", HOSTILE)], 1.0
    )
    await polled(store, good.id, PollResult("0" * 40, now_s - 5, "new", 200, "", 0.2, 4096))
    await polled(store, good.id, PollResult("0" * 40, now_s, "unchanged", 304))
    await polled(store, failing.id, PollResult("0" * 40, now_s, "bad-status", 404, HOSTILE + "x" * 300))
    edited = Change("replacement", Entry("first", "First", "https://example.org/1", "Said twice"), before="Said once")
    await store.subscriptions.subscribe("bob@example.org", good.id)
    added = Change("addition", Entry("two", HOSTILE, summary=HOSTILE, published=now_s - 60))
    delta = await change(store, good, edited, added)
    await register_names(store, [(good.id, 1), (failing.id, 0), (hostile.id, 0)])
    await store.admin_settings.set_tags([(good.id, ["daily"])])
    await store.admin_settings.pause([hostile.id], 7200.0)
    await store.poll_bounds.set(good.id, ChannelBounds(shortest_interval_s=600.0), by="ada")
    await store.subscriptions.subscribe("eve@example.org", failing.id)
    await store.people.set_suspended(keys.user_id("eve@example.org"), suspended=True)
    await store.fleet_policy.set(FleetObjective(goal=Goal.FAIR), by="ada")
    bob = keys.user_id("bob@example.org")
    await store.outbox.enqueue([bob], good.id, delta.version, now_s, split_version(delta))
    batches = await store.outbox.claim([bob], 10, now_s)
    await store.outbox.move_to_dead_letters(bob, batches[bob].message_id, HOSTILE)
    await store.redis.call("XADD", keys.DEAD_LETTERS, "*", "why", HOSTILE)
    await store.blocked_hosts.add("news.example.org", HostBlock("ada", now_s, HOSTILE))
    what_if = "goal=lite&longest_wait_s=1+h&demand_factor=1&delay_s=60&budget_polls_per_minute=9"
    return [
        *("/", "/channels", "/channels?state=failing&sort=-subscribers", "/channels?q=nowhere", "/channels/add"),
        *(f"/channels/{good.id}", f"/channels/{hostile.id}", f"/channels/{good.id}/versions"),
        *(f"/channels/{good.id}/content", f"/channels/{failing.id}", "/api"),
        *(f"/channels/{good.id}/remove", "/policy", f"/policy?{what_if}", "/policy?goal=x", "/hosts"),
        *("/hosts/example.org", "/nodes", "/shards", "/directory", "/directory?q=lang%3Den", "/directory/discover"),
        "/people",
        *(f"/people/{bob}", f"/people/{bob}/forget", "/delivery", "/settings", "/log", "/about", "/nowhere"),
    ]


def _answer(asked: Asked) -> WorkerReply:
    return (
        ContentReply(3, (Entry("k", HOSTILE, "", HOSTILE),), "near", 2, "south")
        if isinstance(asked, ContentRequest)
        else ProbeReply()
    )


@asynccontextmanager
async def _seen(store: Store) -> AsyncIterator[tuple[Visitor, str, list[str]]]:
    paths = await _full(store)
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


async def test_every_page_is_light(store: Store, browser: Browser) -> None:
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
