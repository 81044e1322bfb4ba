"""A real browser that is logged in."""

from playwright.async_api import BrowserContext, Page

from tests.support.console import Visitor


async def enter_as(somebody: Visitor, page: Page | BrowserContext) -> None:
    """Give the browser the cookies of somebody who is logged in."""
    context = page.context if isinstance(page, Page) else page
    for cookie in somebody.http.cookie_jar:
        await context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": somebody.origin}])
