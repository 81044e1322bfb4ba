"""Login of a real browser, and accessibility checks with axe in it."""

from collections.abc import Sequence
from pathlib import Path

from playwright.async_api import BrowserContext, Page

from tests.support.console import Visitor

WCAG_AA = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
COLOURS = ("color-contrast",)

_AXE = (Path(__file__).parents[1] / "browser" / "vendor" / "axe" / "axe.min.js").read_text(encoding="utf-8")
_RUN = """async ([only, but]) =>
    (await axe.run(but ? {exclude: [but]} : document, {runOnly: only}))
    .violations.map(found => `${found.id}: ${found.nodes.map(node => node.html).slice(0, 3).join("  ")}`)"""


async def violations(page: Page, rules: Sequence[str] = WCAG_AA, but: str = "") -> list[str]:
    """Return axe's violations of a page, except in elements that match the selector ``but``."""
    await page.evaluate(_AXE)
    found: list[str] = await page.evaluate(_RUN, [list(rules), but])
    return found


async def enter_as(somebody: Visitor, page: Page | BrowserContext) -> None:
    """Give the browser the cookies of a logged-in visitor."""
    context = page.context if isinstance(page, Page) else page
    for cookie in somebody.http.cookie_jar:
        await context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": somebody.origin}])
