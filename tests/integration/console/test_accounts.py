"""Accounts, sessions, API keys and the audit log, in the API and on pages."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from service.console.auth.passwords import Passwords
from service.console.auth.permissions import SCOPES
from service.store import Store
from service.store.client import keys
from service.store.console.accounts import Role
from tests.support.console import TOKEN, Visitor, logged_in, make_account, stranger
from tests.support.redis_contents import redis_contents

PASSWORD = "correct horse battery"
API = "/api/v1"


@asynccontextmanager
async def program(url: str, token: str = TOKEN) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(url, headers={"Authorization": f"Bearer {token}"}) as http:
        yield http


async def _ask(http: aiohttp.ClientSession, method: str, path: str, body: object = None) -> tuple[int, Any]:
    async with http.request(method, API + path, json=body) as answer:
        return answer.status, await answer.json(content_type=None) if await answer.read() else None


async def _key(store: Store, name: str, scopes: Sequence[str]) -> str:
    account = await store.accounts.get(name)
    assert account is not None
    return (await store.api_keys.create("a key", (name, account), tuple(scopes), 1.0))[1]


async def test_an_invited_account_chooses_a_password_and_logs_in(
    served: tuple[str, web.Application], ada: Visitor, eve: Visitor
) -> None:
    status, page = await ada.post("/settings/accounts", name="bob", role="viewer")
    assert status == 200
    path = unescape(page.partition('class="secret">')[2].partition("</code>")[0]).removeprefix(served[0])
    assert (await eve.post("/login", name="bob", password=""))[0] == 401
    token = path.partition("=")[2]
    assert (await eve.get(path))[0] == 200
    assert (await eve.post("/join", token=token, password="short", again="short"))[0] == 422
    assert await eve.post("/join", token=token, password=PASSWORD, again=PASSWORD) == (303, "/login?ready=1")
    assert (await eve.post("/join", token=token, password=PASSWORD, again=PASSWORD))[0] == 403
    assert await eve.post("/login", name="bob", password=PASSWORD) == (303, "/")
    status, page = await eve.get("/settings")
    assert "with the role <strong>viewer</strong>" in page
    assert "New account" not in page


async def test_a_password_link_is_bound_to_its_account(
    served: tuple[str, web.Application], store: Store, eve: Visitor
) -> None:
    await make_account(store)
    async with program(served[0]) as http:
        _, made = await _ask(http, "POST", "/accounts", {"name": "bob", "role": "admin"})
        assert (await _ask(http, "DELETE", "/accounts/bob"))[0] == 204
    token = made["link"].partition("=")[2]
    assert (await eve.post("/join", token=token, name="ada", password=PASSWORD, again=PASSWORD))[0] == 403


async def test_role_changes_apply_at_once_and_the_last_admin_remains(
    served: tuple[str, web.Application], store: Store, ada: Visitor
) -> None:
    async with program(served[0]) as http, logged_in(served[0], store, "bob", Role.ADMIN) as bob:
        assert (await bob.get("/log"))[0] == 200
        status, account = await _ask(http, "PATCH", "/accounts/bob", {"role": "viewer"})
        assert (status, account["role"]) == (200, "viewer")
        assert (await bob.get("/log"))[0] == 403
        for method, body in (("PATCH", {"role": "operator"}), ("DELETE", None)):
            status, problem = await _ask(http, method, "/accounts/ada", body)
            assert (status, "At least one admin who can log in must remain" in problem["detail"]) == (422, True)
        assert (await _ask(http, "PATCH", "/accounts/nobody", {"role": "viewer"}))[0] == 404
        status, page = await ada.post("/settings/accounts/ada/remove")
        assert (status, "At least one admin who can log in must remain" in page) == (422, True)


async def test_an_invited_admin_does_not_count_as_the_last_admin(store: Store, ada: Visitor) -> None:
    await ada.post("/settings/accounts", name="bob", role="admin")
    assert (await ada.post("/settings/accounts/ada/remove"))[0] == 422
    assert await store.accounts.get("ada") is not None


async def test_removing_an_account_invalidates_sessions_and_keys_for_good(
    served: tuple[str, web.Application], store: Store, ada: Visitor
) -> None:
    async with logged_in(served[0], store, "bob", Role.OPERATOR) as bob:
        token = await _key(store, "bob", ["fleet:read"])
        async with program(served[0], token) as http:
            assert (await _ask(http, "GET", "/nodes"))[0] == 200
            assert await ada.post("/settings/accounts/bob/remove") == (303, "/settings?done=removed#accounts")
            assert (await _ask(http, "GET", "/nodes"))[0] == 401
            assert (await bob.get("/settings"))[0] == 303
            await ada.post("/settings/accounts", name="bob", role="admin")
            assert (await _ask(http, "GET", "/nodes"))[0] == 401
            assert (await bob.get("/settings"))[0] == 303


async def test_a_new_password_ends_all_other_sessions(
    served: tuple[str, web.Application], store: Store, ada: Visitor
) -> None:
    (_, account) = next(iter((await store.accounts.all()).items()))
    token = await store.accounts.create_password_link("ada", account)
    assert token is not None
    assert await store.accounts.set_password(token, "ada", await Passwords().hash(PASSWORD))
    assert account.password_hash == "x"
    assert (await ada.get("/settings"))[0] == 303
    async with stranger(served[0]) as first, stranger(served[0]) as second:
        for each in (first, second):
            assert (await each.post("/login", name="ada", password=PASSWORD))[0] == 303
        _, page = await first.get("/settings")
        first.csrf = page.partition('name="csrf" value="')[2].partition('"')[0]
        wanted = {"wanted": PASSWORD * 2, "again": PASSWORD * 2}
        status, page = await first.post("/settings/password", present="wrong password", **wanted)
        assert (status, "The current password is wrong." in page) == (422, True)
        changed = await first.post("/settings/password", present=PASSWORD, **wanted)
        assert changed == (303, "/settings?done=password")
        assert (await first.get("/settings"))[0] == 200
        assert (await second.get("/settings"))[0] == 303


async def test_accounts_end_their_own_sessions_and_admins_all(
    served: tuple[str, web.Application], store: Store, ada: Visitor
) -> None:
    async with logged_in(served[0], store, "bob", Role.VIEWER) as bob:
        _, page = await bob.get("/settings")
        assert "192.0.2.7" in page
        assert page.count("/end") == 1
        (others,) = [each for each in await store.sessions.all() if each.account == "ada"]
        await bob.post(f"/settings/sessions/{others.id}/end")
        assert (await ada.get("/"))[0] == 200
        async with program(served[0]) as http:
            _, told = await _ask(http, "GET", "/sessions")
            assert {each["account"] for each in told["items"]} == {"ada", "bob"}
            (own,) = [each["id"] for each in told["items"] if each["account"] == "bob"]
            assert (await _ask(http, "DELETE", f"/sessions/{own}"))[0] == 204
            assert (await _ask(http, "DELETE", f"/sessions/{own}"))[0] == 404
        assert (await bob.get("/"))[0] == 303


async def test_a_key_is_shown_once_and_limited_by_scopes_and_role(
    served: tuple[str, web.Application], store: Store, ada: Visitor
) -> None:
    async with logged_in(served[0], store, "bob", Role.VIEWER) as bob:
        made = await bob.http.post(
            API + "/keys",
            json={"name": "board", "scopes": ["channels:write", "fleet:read"]},
            headers={"Origin": bob.origin, "X-CSRF-Token": bob.csrf},
        )
        new = await made.json()
        assert made.status == 201
        _, page = await bob.get("/settings")
        assert ("board" in page, new["token"] in page) == (True, False)
    async with program(served[0], new["token"]) as http:
        assert (await _ask(http, "GET", "/me"))[1] == {
            "account": "bob",
            "role": "viewer",
            "key": "board",
            "scopes": ["channels:write", "fleet:read"],
            "zone": "UTC",
        }
        assert (await _ask(http, "GET", "/channels"))[0] == 200
        status, problem = await _ask(http, "POST", "/channels", {"url": "https://example.org/"})
        assert (status, "the role “operator”" in problem["detail"]) == (403, True)
        status, problem = await _ask(http, "GET", "/keys")
        assert (status, "the required scope “access:read”" in problem["detail"]) == (403, True)
        async with http.get("/", allow_redirects=False) as answer:
            assert answer.status == 303  # a key opens no pages
        assert await ada.post(f"/settings/keys/{new['key']['id']}/revoke") == (303, "/settings?done=key")
        assert (await _ask(http, "GET", "/channels"))[0] == 401


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "k", "scopes": []}, 422),
        ({"name": "k", "scopes": ["all"]}, 422),
        ({"name": "", "scopes": ["fleet:read"]}, 422),
        ({"name": "a\nb", "scopes": ["fleet:read"]}, 422),
        ({"name": "k", "scopes": ["channels:read"]}, 422),
        ({"name": "k", "scopes": ["fleet:read"]}, 201),
    ],
    ids=["no scope", "unknown scope", "no name", "a name of two lines", "more than its maker's", "as good"],
)
async def test_a_key_creates_only_keys_within_its_scopes(
    served: tuple[str, web.Application], store: Store, body: object, status: int
) -> None:
    await make_account(store)
    async with program(served[0], await _key(store, "ada", ["access:write", "fleet:read"])) as http:
        assert (await _ask(http, "POST", "/keys", body))[0] == status


async def test_the_admin_token_cannot_create_keys(
    served: tuple[str, web.Application],
) -> None:
    async with program(served[0]) as http:
        status, problem = await _ask(http, "POST", "/keys", {"name": "k", "scopes": ["fleet:read"]})
    assert (status, "Log in" in problem["detail"]) == (422, True)


async def test_the_store_contains_no_usable_key_link_or_session(store: Store) -> None:
    account = await make_account(store)
    tokens = [
        await _key(store, "ada", ["fleet:read"]),
        await store.accounts.create_password_link("ada", account) or "",
        await store.sessions.open("ada", account),
    ]
    stored = [str(value) + str(key) for key, value in (await redis_contents(store)).items()]
    assert len(stored) == 5
    assert all(tokens)
    assert not [value for value in stored for token in tokens if token in value]


async def test_every_change_is_in_the_audit_log(
    served: tuple[str, web.Application], store: Store, ada: Visitor
) -> None:
    await ada.post("/settings/accounts", name="bob", role="viewer")
    await ada.post("/channels/" + "a" * 40 + "/poll")
    async with program(served[0], await _key(store, "ada", SCOPES)) as http:
        await _ask(http, "PATCH", "/accounts/bob", {"role": "operator"})
        _, told = await _ask(http, "GET", "/log?limit=2")
        assert [(d["deed"]["by"], d["deed"]["key"], d["deed"]["status"]) for d in told["items"]] == [
            ("ada", "a key", 200),
            ("ada", "", 404),
        ]
        assert told["items"][0]["deed"]["detail"] == "operator"
        assert told["items"][0]["deed"]["on"] == "/api/v1/accounts/bob"
        _, rest = await _ask(http, "GET", f"/log?cursor={told['next']}")
        assert [d["deed"]["detail"] for d in rest["items"]] == ["bob: viewer"]
        assert rest["next"] == ""
        assert (await _ask(http, "GET", "/log?cursor=x"))[0] == 422
    _, page = await ada.get("/log")
    assert "Change the role of an account" in page
    assert "API key a key" in page
    assert "Failed (404)" in page


async def test_changes_interrupted_by_a_crash_are_in_the_audit_log(store: Store, ada: Visitor) -> None:
    await ada.post("/settings/accounts", name="bob", role="viewer")
    ((noted,), _) = await store.audit_log.page()
    await store.audit_log.begin("lost", noted.deed)
    assert await store.redis.call("HLEN", keys.AUDIT_PENDING) == 1
    long_ago = type(noted.deed)(0.0, "ada", "", "", "Drain a node.", "/nodes")
    await store.audit_log.begin("longer", long_ago)
    (newest, *_), _ = await store.audit_log.page()
    assert (newest.deed.action, newest.deed.status) == ("Drain a node.", 0)
    assert "Unknown" in (await ada.get("/log"))[1]


_AS_ADMIN = [
    ("POST", "/accounts", {"name": "eve", "role": "admin"}),
    ("POST", "/accounts/bob/link", None),
    ("PATCH", "/accounts/bob", {"role": "viewer"}),
    ("PATCH", "/accounts/cyd", {"role": "admin"}),
    ("DELETE", "/accounts/bob", None),
]


@pytest.mark.parametrize("change", _AS_ADMIN)
@pytest.mark.parametrize("scopes", [["access:write"], SCOPES], ids=["one scope", "all scopes"])
async def test_a_key_cannot_manage_admins(
    served: tuple[str, web.Application], store: Store, change: tuple[str, str, object], scopes: Sequence[str]
) -> None:
    for name, role in (("ada", Role.ADMIN), ("bob", Role.ADMIN), ("cyd", Role.VIEWER)):
        await make_account(store, name, role)
    before = await store.accounts.all()
    async with program(served[0], await _key(store, "ada", scopes)) as http:
        status, problem = await _ask(http, *change)
    assert (status, problem["code"]) == (403, "not-allowed")
    assert await store.accounts.all() == before


@pytest.mark.parametrize(
    ("scopes", "role", "status"),
    [
        (["access:write"], "viewer", 403),
        (["access:write", *(scope for scope in SCOPES if scope.endswith(":read"))], "viewer", 201),
        (["access:write", *(scope for scope in SCOPES if scope.endswith(":read"))], "operator", 403),
        (SCOPES, "operator", 201),
    ],
)
async def test_a_key_cannot_create_accounts_with_more_rights(
    served: tuple[str, web.Application], store: Store, scopes: Sequence[str], role: str, status: int
) -> None:
    """Otherwise the key's holder could log in with the account's link and exceed the key's scopes."""
    await make_account(store)
    async with program(served[0], await _key(store, "ada", scopes)) as http:
        assert (await _ask(http, "POST", "/accounts", {"name": "eve", "role": role}))[0] == status
        await make_account(store, "dan", Role(role))
        expected = 200 if status == 201 else 403
        assert (await _ask(http, "POST", "/accounts/dan/link"))[0] == expected


async def test_a_key_cannot_end_sessions_of_other_admins(served: tuple[str, web.Application], store: Store) -> None:
    ada, bob = await make_account(store), await make_account(store, "bob")
    await store.sessions.open("bob", bob)
    await store.sessions.open("ada", ada)
    await _key(store, "bob", SCOPES)
    async with program(served[0], await _key(store, "ada", SCOPES)) as http:
        sessions = {each.account: each.id for each in await store.sessions.all()}
        keys = {key.account: key.id for key, _ in await store.api_keys.all()}
        assert (await _ask(http, "DELETE", f"/sessions/{sessions['bob']}"))[0] == 403
        assert (await _ask(http, "DELETE", f"/keys/{keys['bob']}"))[0] == 403
        assert (await _ask(http, "DELETE", f"/sessions/{sessions['ada']}"))[0] == 204
        assert (await _ask(http, "DELETE", f"/keys/{keys['ada']}"))[0] == 204
