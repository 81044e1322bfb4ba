"""Login of a real browser, and accessibility checks with axe in it."""

from collections.abc import Sequence
from pathlib import Path

from playwright.async_api import BrowserContext, Page

from tests.support.console import Visitor

WCAG_AA = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
COLOURS = ("color-contrast",)

CHROMIUM = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
"""Arguments that prevent Chromium from sending requests that no page causes."""

_PASSWORD = "correct horse battery"

_AXE = (Path(__file__).parents[1] / "browser" / "vendor" / "axe" / "axe.min.js").read_text(encoding="utf-8")
_RUN = """async ([only, but]) =>
    (await axe.run(but ? {exclude: [but]} : document, {runOnly: only}))
    .violations.map(found => `${found.id}: ${found.nodes.map(node => node.html).slice(0, 3).join("  ")}`)"""


async def violations(page: Page, rules: Sequence[str] = WCAG_AA, but: str = "") -> list[str]:
    """Return the violations of ``rules`` that axe finds in a page, except in elements that match ``but`` (CSS)."""
    await page.evaluate(_AXE)
    found: list[str] = await page.evaluate(_RUN, [list(rules), but])
    return found


async def create_account_and_log_in(page: Page, link: str) -> None:
    """Create the first account by the set-up link and log in."""
    await page.goto(link)
    await page.get_by_label("Name").fill("ada")
    await page.get_by_label("Password", exact=False).first.fill(_PASSWORD)
    await page.get_by_label("Repeat password").fill(_PASSWORD)
    await page.get_by_role("button", name="Create account").click()
    await page.get_by_label("Name").fill("ada")
    await page.get_by_label("Password").fill(_PASSWORD)
    await page.keyboard.press("Enter")
    await page.get_by_role("link", name="Chat").wait_for()


async def enter_as(somebody: Visitor, page: Page | BrowserContext) -> None:
    """Add the cookies of a logged-in visitor to the browser."""
    context = page.context if isinstance(page, Page) else page
    for cookie in somebody.http.cookie_jar:
        await context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": somebody.origin}])
