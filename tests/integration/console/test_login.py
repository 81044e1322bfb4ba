"""The first account, login and logout."""

import asyncio

import pytest
from aiohttp import web
from argon2 import PasswordHasher, extract_parameters
from argon2.exceptions import VerifyMismatchError
from yarl import URL

from service.console.app_keys import PASSWORDS
from service.console.auth.authentication import SESSION_COOKIE
from service.console.auth.first_account import create_setup_link
from service.console.auth.passwords import Passwords
from service.store import Store
from service.store.client import keys
from service.store.console.accounts import Account
from tests.support.console import Visitor, console, make_account, stranger
from tests.support.waiting import until_so

PASSWORD = "correct horse battery"


async def _make_account(store: Store) -> None:
    token = await store.accounts.new_setup_token()
    assert await store.accounts.create_first(token, "ada", Account(await Passwords().hash(PASSWORD), 0.0))


async def _setup_path(store: Store, url: str) -> str:
    link = await create_setup_link(store, url)
    assert link is not None
    return link.removeprefix(url)


async def test_a_setup_link_creates_one_account_only(
    served: tuple[str, web.Application], store: Store, eve: Visitor
) -> None:
    path = await _setup_path(store, served[0])
    earlier = await _setup_path(store, served[0])
    assert (await eve.get(path))[0] == 200
    form = {"token": path.partition("=")[2], "name": "ada", "password": PASSWORD, "again": PASSWORD}
    assert await eve.post("/setup", **form) == (303, "/login?ready=1")
    assert (await eve.post("/setup", **form))[0] == 403
    status, page = await eve.get(earlier)
    assert (status, "log in" in page) == (403, True)
    assert await create_setup_link(store, served[0]) is None


async def test_the_first_account_requires_the_setup_link(store: Store, eve: Visitor) -> None:
    await store.accounts.new_setup_token()
    assert (await eve.get("/setup"))[0] == 403
    assert (await eve.post("/setup", token="guess", name="eve", password=PASSWORD, again=PASSWORD))[0] == 403
    assert not await store.accounts.all()


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"password": "too short", "again": "too short"}, "at least 10 characters"),
        ({"again": PASSWORD + "x"}, "passwords do not match"),
        ({"password": "x" * 2000, "again": "x" * 2000}, "at most 1024"),
        ({"name": "Ada L"}, "lowercase letters"),
        ({"name": ""}, "lowercase letters"),
    ],
)
async def test_an_invalid_account_is_refused_with_an_explanation(
    store: Store, eve: Visitor, form: dict[str, str], words: str
) -> None:
    token = await store.accounts.new_setup_token()
    sent = {"token": token, "name": "ada", "password": PASSWORD, "again": PASSWORD, **form}
    status, text = await eve.post("/setup", **sent)
    assert status == 422
    assert words in text
    assert sent["password"] not in text


async def test_login_and_logout(store: Store, eve: Visitor) -> None:
    await _make_account(store)
    assert await eve.post("/login", name="ada", password=PASSWORD, next="/nodes") == (303, "/nodes")
    status, text = await eve.get("/nodes")
    assert status == 200
    eve.csrf = text.partition('name="csrf" value="')[2].partition('"')[0]
    assert await eve.post("/logout") == (303, "/login")
    assert (await eve.get("/nodes"))[0] == 303


async def test_a_closed_session_stays_invalid(store: Store, ada: Visitor) -> None:
    cookie = ada.http.cookie_jar.filter_cookies(URL(ada.origin))[SESSION_COOKIE].value
    assert await store.sessions.find(cookie) is not None
    await ada.post("/logout")
    assert await store.sessions.find(cookie) is None


async def test_the_session_cookie_is_http_only_and_same_site(store: Store) -> None:
    await _make_account(store)
    async with console(store, public_url="https://console.example") as (url, _), stranger(url) as eve:
        sent = {"csrf": eve.csrf, "name": "ada", "password": PASSWORD}
        headers = {"Origin": "https://console.example"}
        async with eve.http.post("/login", data=sent, headers=headers, allow_redirects=False) as answer:
            cookie = answer.cookies[SESSION_COOKIE]
            assert answer.headers["Strict-Transport-Security"]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Strict"
    assert cookie["secure"]
    assert len(cookie.value) >= 22  # 128 bits in base 64


@pytest.mark.parametrize(("name", "password"), [("ada", "wrong password"), ("nobody", PASSWORD), ("", "")])
async def test_a_wrong_name_and_a_wrong_password_get_the_same_message(
    store: Store, eve: Visitor, name: str, password: str
) -> None:
    await _make_account(store)
    status, text = await eve.post("/login", name=name, password=password)
    assert status == 401
    assert "Wrong name or password." in text


async def test_the_sixth_login_within_a_minute_is_refused_even_with_the_right_password(
    store: Store, eve: Visitor
) -> None:
    await _make_account(store)
    for _ in range(5):
        assert (await eve.post("/login", name="ada", password="guess"))[0] == 401
    status, text = await eve.post("/login", name="ada", password=PASSWORD)
    assert status == 429
    assert "Try again in a minute" in text


@pytest.mark.parametrize("name", ["ada", "nobody", "invited"])
async def test_neither_response_nor_hashing_work_reveals_whether_an_account_exists(
    store: Store, eve: Visitor, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _make_account(store)
    await store.accounts.change("invited", Account("", 0.0), await store.accounts.all())
    verified = []

    def verify(_: PasswordHasher, stored: str, password: str) -> bool:
        verified.append(extract_parameters(stored))
        assert password == "guess"
        raise VerifyMismatchError

    monkeypatch.setattr(PasswordHasher, "verify", verify)
    answers = [await eve.post("/login", name=name, password="guess") for _ in range(6)]
    assert verified == [extract_parameters(await Passwords().hash("any"))] * 5
    assert [status for status, _ in answers] == [401] * 5 + [429]
    assert len({text for _, text in answers[:5]}) == 1
    assert ("Wrong name or password." in answers[0][1], "Try again in a minute" in answers[5][1]) == (
        True,
        True,
    )


async def test_logins_are_refused_while_too_many_hashes_are_queued(
    served: tuple[str, web.Application], store: Store, eve: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _make_account(store)
    monkeypatch.setattr("service.console.auth.passwords._MAX_QUEUED_FOR_UNKNOWN", 2)
    passwords = served[1][PASSWORDS]
    async with stranger(served[0]) as ada:
        assert (await ada.post("/login", name="ada", password=PASSWORD))[0] == 303
        await passwords._lock.acquire()
        waiting = [asyncio.create_task(passwords.verify("guess", "")) for _ in range(2)]
        await asyncio.sleep(0)
        status, text = await eve.post("/login", name="ada", password=PASSWORD)
        assert (status, "Too many people are logging in" in text) == (429, True)
        assert (await eve.get("/livez"))[0] == 200
        known = asyncio.create_task(ada.post("/login", name="ada", password=PASSWORD))
        await until_so(lambda: passwords._queued == 3, "a known browser waits with them")
        passwords._lock.release()
        assert await asyncio.gather(*waiting) == [False, False]
        assert (await known)[0] == 303
    assert (await eve.post("/login", name="ada", password="guess"))[0] == 401


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "/a\nb", ""]
)
async def test_login_redirects_only_to_local_paths(store: Store, eve: Visitor, target: str) -> None:
    await _make_account(store)
    assert await eve.post("/login", name="ada", password=PASSWORD, next=target) == (303, "/")


async def test_the_store_contains_no_usable_token(store: Store) -> None:
    session = await store.sessions.open("ada", await make_account(store))
    token = await store.accounts.new_setup_token()
    stored = [*await store.redis.call("KEYS", "*"), *await store.redis.call("SMEMBERS", "cn:{console}:setup")]
    assert stored
    assert not [value for value in stored if session.encode() in value or token.encode() in value]


async def test_sessions_and_setup_tokens_expire(store: Store) -> None:
    account = await make_account(store)
    await store.sessions.open("ada", account)
    await store.accounts.new_setup_token()
    assert await store.accounts.create_password_link("ada", account)
    kept = [key for key in await store.redis.call("KEYS", "cn:{console}:*") if key.decode() != keys.CONSOLE_ACCOUNTS]
    assert len(kept) == 4
    for key in kept:
        assert await store.redis.call("TTL", key) > 0
