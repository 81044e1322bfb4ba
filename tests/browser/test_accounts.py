"""Accounts, API keys and Swagger UI in a browser."""

from playwright.async_api import Browser

from service.store import Store
from tests.support.browser import enter_as
from tests.support.console import console, logged_in

PASSWORD = "correct horse battery"


async def test_an_invited_account_logs_in_and_creates_a_key(store: Store, browser: Browser) -> None:
    async with console(store) as (url, _), logged_in(url, store) as ada:
        page = await browser.new_page()
        await enter_as(ada, page)
        await page.goto(f"{url}/settings")
        await page.get_by_text("New account").click()
        form = page.locator('form[action="/settings/accounts"]')
        await form.get_by_label("Name").fill("bob")
        await form.get_by_label("Role").select_option("viewer")
        await form.get_by_role("button").click()
        link = await page.locator(".secret").inner_text()

        theirs = await (await browser.new_context()).new_page()
        await theirs.goto(link)
        await theirs.get_by_label("Password", exact=False).first.fill(PASSWORD)
        await theirs.get_by_label("Repeat password").fill(PASSWORD)
        await theirs.get_by_role("button", name="Set password").click()
        await theirs.get_by_label("Name").fill("bob")
        await theirs.get_by_label("Password").fill(PASSWORD)
        await theirs.get_by_role("button", name="Log in").click()
        await theirs.goto(f"{url}/settings")
        await theirs.get_by_text("New API key").click()
        await theirs.locator('form[action="/settings/keys"]').get_by_label("Name").fill("board")
        await theirs.get_by_label("fleet:read").check()
        await theirs.get_by_role("button", name="Create API key").click()
        assert (await theirs.locator(".secret").inner_text()).startswith("coronet_")
        assert await theirs.get_by_role("heading", name="Accounts").count() == 0

        await page.goto(f"{url}/log")
        said = await page.locator("tbody").inner_text()
        assert "Create an API key for your own account" in said
        assert "bob: viewer" in said


async def test_swagger_ui_works_under_the_content_security_policy(store: Store, browser: Browser) -> None:
    async with console(store) as (url, _), logged_in(url, store) as ada:
        page = await browser.new_page()
        complaints: list[str] = []
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        await enter_as(ada, page)
        await page.goto(f"{url}/api")
        await page.get_by_role("button", name="Open Swagger UI").click()
        await page.locator("#operations-fleet-undo_policy").get_by_role("button").first.click()
        await page.get_by_role("button", name="Try it out").click()
        async with page.expect_response("**/api/v1/policy/undo") as answered:
            await page.get_by_role("button", name="Execute").click()
        assert (await answered.value).status == 422, "our token came along, and there is nothing to undo"
        assert [said for said in complaints if "422" not in said] == []
