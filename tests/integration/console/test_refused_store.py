"""A console whose store lost its data reports this everywhere, and an operator can accept the store."""

import aiohttp
import pytest

from service.errors import StoreIdentityMismatch
from service.store import Store
from service.store.client import keys
from tests.support.console import TOKEN, Visitor, console, logged_in, stranger

SAID = "The store is empty, although"
ACCEPT = "/api/v1/store/accept"


async def _lose_all_data(store: Store) -> None:
    await store.identity.refresh()
    await store.redis.call("HINCRBY", keys.STORE_IDENTITY, "counter", 10)
    await store.identity.refresh()
    await store.redis.call("FLUSHALL")
    await store.identity.refresh()


async def _ask(url: str, method: str, path: str, token: str = TOKEN) -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "again"}
    async with aiohttp.request(method, url + path, headers=headers) as answer:
        return answer.status, await answer.text()


async def _says_refused(visitor: Visitor, path: str) -> bool:
    status, text = await visitor.get(path)
    return status == 503 and SAID in text and "accept-store" in text


async def test_pages_api_and_readiness_report_a_refused_store(store: Store) -> None:
    async with console(store) as (url, _), logged_in(url, store) as ada, stranger(url) as nobody:
        await _lose_all_data(store)
        for path in ("/", "/channels", "/login", "/setup?token=x", "/readyz"):
            assert await _says_refused(nobody, path), path
        assert await _says_refused(ada, "/people")
        status, problem = await _ask(url, "GET", "/api/v1/overview")
        assert (status, '"code":"store-refused"' in problem, SAID in problem) == (503, True, True)
        assert (await nobody.get("/livez"))[0] == 200
        assert (await nobody.get("/static/console.css"))[0] == 200


async def test_the_admin_token_accepts_the_store_with_an_audit_entry(store: Store) -> None:
    async with console(store) as (url, _):
        await _lose_all_data(store)
        assert (await _ask(url, "POST", ACCEPT, "another token"))[0] == 401
        with pytest.raises(StoreIdentityMismatch):
            await store.ping()
        status, said = await _ask(url, "POST", ACCEPT)
        assert (status, "has been accepted" in said) == (200, True)
        await store.ping()
        assert (await _ask(url, "GET", "/api/v1/overview"))[0] == 200
        ((noted,), _) = await store.audit_log.page()
        deed = noted.deed
        assert (deed.action, deed.on, deed.key) == ("Accept the store as it is.", ACCEPT, "console_admin_token")
