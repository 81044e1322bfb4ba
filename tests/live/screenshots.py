"""Pictures for the README from a running product: ``python -m tests.live.screenshots docs/images``.

Runs ``coronet up`` with three workers and a few feeds of a sample publisher, to which the five trial accounts
subscribe. Chromium opens the console's page Overview and a conversation on its page Chat. Takes about two minutes.
"""

import argparse
import asyncio
import io
import tempfile
from pathlib import Path

import PIL.Image
from playwright.async_api import Page, async_playwright, expect

from service.console.auth.first_account import create_setup_link
from service.embedded.sample_publisher import SamplePublisher
from tests.support.browser import CHROMIUM, create_account_and_log_in
from tests.support.product_process import Product, running

MAX_BYTES = 150_000
_SUBSCRIBERS = (5, 4, 3, 3, 2, 2, 1)
"""Subscribers of each feed."""
_EARLIER = ("Redis 8.2 is out", "A quiet week for mail servers", "Five papers on feed polling", "Hello again")
_NEWS = "XMPP in the browser, without plugins"
_BUSY_S = 60.0
"""How long the product runs before pictures are taken, so that its charts show something."""


async def save(page: Page, path: Path) -> None:
    """Save the visible part of the page as a PNG with 256 colours, which is small and shows no difference."""
    picture = PIL.Image.open(io.BytesIO(await page.screenshot())).convert("RGB").quantize(256)
    picture.save(path, optimize=True)
    if path.stat().st_size > MAX_BYTES:
        raise RuntimeError(f"{path} has more than {MAX_BYTES} bytes.")


async def subscribe_all(product: Product, publisher: SamplePublisher) -> None:
    """Subscribe the trial accounts to the publisher's feeds, as many as each feed shall have."""
    for account in range(max(_SUBSCRIBERS)):
        async with product.chat(account) as person:
            for feed, count in enumerate(_SUBSCRIBERS):
                if account < count:
                    await person.say(publisher.feed_url(feed))


async def take(folder: Path) -> None:
    """Run the product and save the pictures ``console.png`` and ``chat.png`` in ``folder``."""
    with tempfile.TemporaryDirectory(prefix="coronet-screenshots-") as state:
        async with (
            running(Path(state) / "up", "--poll-interval", "5", "--no-sample-feeds") as product,
            SamplePublisher(Path(state) / "publisher") as publisher,
            async_playwright() as playwright,
        ):
            for feed in range(len(_SUBSCRIBERS)):
                for title in _EARLIER[: 1 + feed % len(_EARLIER)]:
                    await publisher.publish(title, feed=feed)
            await subscribe_all(product, publisher)
            async with product.store() as store:
                link = await create_setup_link(store, product.ready["console_url"])
            if link is None:
                raise RuntimeError("The console has an account already.")
            browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=CHROMIUM)
            try:
                page = await browser.new_page(viewport={"width": 1200, "height": 1100})
                await create_account_and_log_in(page, link)
                await publisher.publish("News for the charts", feed=1)
                await asyncio.sleep(_BUSY_S)
                await page.get_by_role("link", name="Overview").first.click()
                await page.wait_for_load_state()
                await save(page, folder / "console.png")
                await chat(page, publisher)
                await save(page, folder / "chat.png")
            finally:
                await browser.close()


async def chat(page: Page, publisher: SamplePublisher) -> None:
    """Have a short conversation with the bot on the page Chat."""
    await page.set_viewport_size({"width": 1200, "height": 860})
    await page.get_by_role("link", name="Chat").click()
    box = page.locator("textarea.chat-textarea")
    await expect(box).to_be_visible(timeout=40_000)
    shown = page.locator("#chat")
    offer = page.get_by_role("button", name="Dismiss")  # to add the bot as a contact
    await offer.click()
    for words, answer in (("list", "sample"), ("why #1", "checked")):
        await box.fill(words)
        await box.press("Enter")
        await expect(shown).to_contain_text(answer, timeout=40_000, ignore_case=True)
    await publisher.publish(_NEWS)
    await expect(shown).to_contain_text(_NEWS, timeout=60_000)
    await page.evaluate("scrollTo(0, 0)")
    await page.wait_for_timeout(500)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(take(folder))


if __name__ == "__main__":
    main()
