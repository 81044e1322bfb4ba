"""Password links: the account that each is bound to, and what invalidates it."""

from collections.abc import AsyncIterator

import aiohttp
import pytest_asyncio
from aiohttp import web

from service.console.auth.first_account import create_setup_link
from service.console.auth.passwords import Passwords
from service.store import Store
from service.store.client import keys
from service.store.console.accounts import Account, Role
from tests.support.console import TOKEN, Visitor, make_account, stranger

PASSWORD = "correct horse battery"


async def _link(http: aiohttp.ClientSession, name: str) -> str:
    async with http.post(f"/api/v1/accounts/{name}/link") as answer:
        assert answer.status == 200
        return str((await answer.json())["link"]).partition("=")[2]


async def _is_good(somebody: Visitor, token: str) -> bool:
    shown = (await somebody.get(f"/join?token={token}"))[0] == 200
    taken = (await somebody.post("/join", token=token, password=PASSWORD, again=PASSWORD))[0] == 303
    assert shown is taken
    return taken


@pytest_asyncio.fixture
async def api(served: tuple[str, web.Application]) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(served[0], headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        yield http


async def test_a_new_link_invalidates_the_older_one(store: Store, api: aiohttp.ClientSession, eve: Visitor) -> None:
    await make_account(store)
    older, newer = await _link(api, "ada"), await _link(api, "ada")
    assert not await _is_good(eve, older)
    assert await _is_good(eve, newer)


async def test_a_link_does_not_work_for_a_recreated_account(
    store: Store, api: aiohttp.ClientSession, eve: Visitor
) -> None:
    await make_account(store)
    await make_account(store, "bob", Role.VIEWER)
    older = await _link(api, "bob")
    async with api.delete("/api/v1/accounts/bob") as answer:
        assert answer.status == 204
    async with api.post("/api/v1/accounts", json={"name": "bob", "role": "admin"}) as answer:
        newer = (await answer.json())["link"].partition("=")[2]
    assert not await _is_good(eve, older)
    assert await _is_good(eve, newer)
    bob = await store.accounts.get("bob")
    assert bob is not None
    assert bob.role is Role.ADMIN


async def test_a_password_change_invalidates_links(
    served: tuple[str, web.Application], store: Store, api: aiohttp.ClientSession, eve: Visitor
) -> None:
    assert await store.accounts.change("ada", Account(await Passwords().hash(PASSWORD), 1_000.0), {})
    token = await _link(api, "ada")
    assert await eve.post("/login", name="ada", password=PASSWORD) == (303, "/")
    _, page = await eve.get("/settings")
    eve.csrf = page.partition('name="csrf" value="')[2].partition('"')[0]
    changed = await eve.post("/settings/password", present=PASSWORD, wanted=PASSWORD * 2, again=PASSWORD * 2)
    assert changed == (303, "/settings?done=password")
    async with stranger(served[0]) as another:
        assert not await _is_good(another, token)
    assert await store.redis.call("HLEN", keys.CONSOLE_PASSWORD_LINKS) == 0


async def test_a_setup_link_is_invalid_once_an_account_exists(
    served: tuple[str, web.Application], store: Store, api: aiohttp.ClientSession, eve: Visitor
) -> None:
    link = await create_setup_link(store, served[0])
    assert link is not None
    async with api.post("/api/v1/accounts", json={"name": "ada", "role": "admin"}) as answer:
        assert answer.status == 201
    assert (await eve.get(link.removeprefix(served[0])))[0] == 403
    assert await store.redis.call("EXISTS", keys.CONSOLE_SETUP_TOKENS) == 0
