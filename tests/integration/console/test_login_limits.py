"""Limits of login attempts per address, per account and address, per account, and per known browser."""

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from service.console.auth.login import browser_cookie_name
from service.console.auth.passwords import Passwords
from service.store import Store
from service.store.client import keys
from service.store.console.accounts import Account
from service.store.console.login_limits import MAX_KNOWN_BROWSERS
from tests.support.console import Visitor, console, make_account, stranger
from tests.support.redis_contents import redis_contents

PASSWORD = "correct horse battery"
ELSEWHERE = "127.0.0.9"


@pytest.fixture
async def account(store: Store) -> Account:
    account = Account(await Passwords().hash(PASSWORD), 0.0)
    assert await store.accounts.change("ada", account, {})
    return account


async def _log_in(somebody: Visitor, password: str = PASSWORD, name: str = "ada") -> int:
    return (await somebody.post("/login", name=name, password=password))[0]


async def _guess_until_locked(somebody: Visitor) -> None:
    """Guess a password five times; logins to other accounts from the same address count as well."""
    statuses = [await _log_in(somebody, "guess") for _ in range(6)]
    assert statuses[0] == 401
    assert statuses[-1] == 429


@pytest.mark.usefixtures("account")
async def test_guesses_from_one_address_do_not_lock_out_others(
    served: tuple[str, web.Application], eve: Visitor
) -> None:
    await _guess_until_locked(eve)
    assert await _log_in(eve) == 429
    async with stranger(served[0], address=ELSEWHERE) as ada:
        assert await _log_in(ada) == 303


@pytest.mark.usefixtures("account")
async def test_a_known_browser_can_log_in_from_a_locked_address(
    served: tuple[str, web.Application], eve: Visitor
) -> None:
    async with stranger(served[0]) as ada:
        assert await _log_in(ada) == 303
        await _guess_until_locked(eve)
        assert await _log_in(ada) == 303
        assert [await _log_in(ada, "guess") for _ in range(6)] == [401] * 5 + [429]


@pytest.mark.usefixtures("account")
async def test_guesses_from_many_addresses_are_limited_except_for_known_browsers(
    served: tuple[str, web.Application], store: Store
) -> None:
    async with stranger(served[0], address=ELSEWHERE) as ada, stranger(served[0]) as newcomer:
        assert await _log_in(ada) == 303
        waits = [await store.login_limits.count_attempt("ada", f"192.0.2.{n % 200}") for n in range(200)]
        assert 0 < sum(wait_s == 0 for wait_s in waits) <= 100
        assert max(waits) > 600
        assert await _log_in(newcomer) == 429
        assert await _log_in(newcomer, name="bob") == 401
        assert await _log_in(ada) == 303


async def test_one_address_cannot_exhaust_the_limit_of_an_account(store: Store) -> None:
    for _ in range(150):
        await store.login_limits.count_attempt("ada", "192.0.2.1")
        for key in await store.redis.call("KEYS", "cn:{console}:attempts:minute:*"):
            await store.redis.call("DEL", key)
    assert await store.login_limits.count_attempt("ada", "192.0.2.2") == 0


async def test_ipv6_addresses_are_counted_per_64_bit_network(store: Store) -> None:
    allowed = [await store.login_limits.count_attempt("ada", f"2001:db8::{n:x}") == 0 for n in range(6)]
    assert allowed == [True] * 5 + [False]
    assert await store.login_limits.count_attempt("ada", "2001:db8:0:1::1") == 0


async def test_attempts_on_many_accounts_are_limited_per_address(store: Store) -> None:
    allowed = [await store.login_limits.count_attempt(f"name{n}", "192.0.2.1") == 0 for n in range(30)]
    assert allowed == [True] * 20 + [False] * 10


@pytest.mark.usefixtures("account")
async def test_a_new_password_invalidates_known_browsers(
    served: tuple[str, web.Application], store: Store, eve: Visitor
) -> None:
    async with stranger(served[0]) as ada:
        assert await _log_in(ada) == 303
        account = await store.accounts.get("ada")
        assert account is not None
        link = await store.accounts.create_password_link("ada", account)
        assert link is not None
        assert await store.accounts.set_password(link, "ada", await Passwords().hash("another" + PASSWORD))
        await _guess_until_locked(eve)
        assert await _log_in(ada, "another" + PASSWORD) == 429


@pytest.mark.usefixtures("account")
async def test_a_browser_cookie_is_for_one_account_and_stored_as_a_hash(
    store: Store, served: tuple[str, web.Application]
) -> None:
    await make_account(store, "bob")
    async with stranger(served[0]) as ada:
        assert await _log_in(ada) == 303
        token = ada.http.cookie_jar.filter_cookies(URL(served[0]))[browser_cookie_name("ada")].value
    bob = await store.accounts.get("bob")
    assert bob is not None
    assert not await store.login_limits.is_known_browser("bob", bob, token)
    contents = await redis_contents(store)
    assert token.encode() not in b"".join([*contents, *contents.values()])


async def test_known_browsers_of_an_account_are_limited(store: Store, account: Account) -> None:
    tokens = [await store.login_limits.remember_browser("ada", account, "") for _ in range(MAX_KNOWN_BROWSERS + 5)]
    assert not await store.login_limits.is_known_browser("ada", account, tokens[4])
    assert await store.login_limits.is_known_browser("ada", account, tokens[5])
    (key,) = await store.redis.call("KEYS", keys.known_browsers("*"))
    assert await store.redis.call("ZCARD", key) == MAX_KNOWN_BROWSERS
    assert await store.redis.call("TTL", key) > 0


@pytest.mark.usefixtures("account")
async def test_a_forwarded_address_without_a_trusted_proxy_is_ignored(store: Store) -> None:
    """Without ``trusted_proxies``, forwarding headers do not change whose guesses count."""
    async with console(store) as (url, _), aiohttp.ClientSession() as http, stranger(url) as eve:
        statuses = []
        for number in range(6):
            headers = {"Origin": url, "X-Forwarded-For": f"192.0.2.{number}", "Forwarded": f"for=192.0.2.{number}"}
            sent = {"csrf": eve.csrf, "name": "ada", "password": "guess"}
            async with http.post(
                f"{url}/login", data=sent, headers=headers, cookies={"coronet_form": "a-form-cookie"}
            ) as answer:
                statuses.append(answer.status)
    assert statuses == [401] * 5 + [429]
