"""Authorization of every route, CSRF protection, security headers and body limits."""

import asyncio
import re
from collections.abc import AsyncIterator
from io import BytesIO

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs
from yarl import URL

from service.console.api.operation_registry import OPERATIONS
from service.console.auth.permissions import SCOPES
from service.console.route_rules import ROUTE_RULES, OpenAccess
from service.store import Store
from service.store.console.accounts import Role
from tests.support.console import TOKEN, Visitor, logged_in, make_account

OPEN_TO_ALL = {
    "/livez",
    "/readyz",
    "/metrics",
    "/static/{path}",
    "/login",
    "/setup",
    "/join",
    "/api/v1/openapi.json",
    "/feeds/{token}.atom",
    "/channels/{cid}.atom",
}
OPEN_TO_HUBS = {"/websub/{cid}/{token}"}

OWN = {
    "/logout",
    "/settings/password",
    "/settings/zone",
    "/api/v1/me/zone",
    "/settings/keys",
    "/settings/keys/{key}/revoke",
    "/settings/sessions/{session}/end",
    "/api/v1/me/password",
    "/api/v1/keys",
    "/api/v1/keys/{key}",
    "/api/v1/sessions/{session}",
}
"""Changes of own data, which every role may make."""
QUESTIONS = {"/api/v1/policy/what-if"}
"""POST routes that change nothing."""
FOR_ADMINS = re.compile(
    r"/log|/chat.*|/people/{user}/forget|/api/v1/log|/settings/accounts.*|/api/v1/accounts.*|(/api/v1)?/announcements.*"
)
"""Routes that require the role admin."""
CHANGED_BY_ADMINS = re.compile(r"/policy.*|/api/v1/(policy.*|store/accept)|DELETE /api/v1/people/{user}|.*/forget")
"""Routes whose changes require the role admin."""
FORMS = {"/channels/add", "/channels/{cid}/remove"}
"""Pages that viewers cannot use."""


def _routes(app: web.Application) -> list[tuple[str, str]]:
    found = [(route.method, route.resource.canonical) for route in app.router.routes() if route.resource is not None]
    assert len(found) > 30
    return found


def _filled(path: str) -> str:
    return re.sub(r"\{\w+\}", "a" * 40, path)


def _least(method: str, path: str) -> Role:
    """Return the role that a route should require, independently of its declaration."""
    if FOR_ADMINS.fullmatch(path):
        return Role.ADMIN
    if method in {"GET", "HEAD"}:
        return Role.OPERATOR if path in FORMS else Role.VIEWER
    if path in OWN | QUESTIONS:
        return Role.VIEWER
    for_admins = CHANGED_BY_ADMINS.fullmatch(path) or CHANGED_BY_ADMINS.fullmatch(f"{method} {path}")
    return Role.ADMIN if for_admins else Role.OPERATOR


async def test_every_route_requires_login_unless_declared_public(
    served: tuple[str, web.Application], eve: Visitor
) -> None:
    for method, path in _routes(served[1]):
        if path in OPEN_TO_ALL | OPEN_TO_HUBS:
            continue
        async with eve.http.request(method, _filled(path), allow_redirects=False) as answer:
            if path.startswith("/api/"):
                assert answer.status == 401, (method, path)
                assert answer.headers["WWW-Authenticate"].startswith("Bearer")
            else:
                assert (answer.status, answer.headers["Location"][:6]) == (303, "/login"), (method, path)


@pytest.mark.parametrize("role", list(Role))
async def test_every_route_requires_the_expected_role(
    served: tuple[str, web.Application], store: Store, role: Role
) -> None:
    async with logged_in(served[0], store, "bob", role) as bob:
        headers = {"Origin": bob.origin, "X-CSRF-Token": bob.csrf}
        for method, path in sorted(_routes(served[1]), key=lambda route: route[1] == "/logout"):
            if path in OPEN_TO_ALL | OPEN_TO_HUBS:
                continue
            async with bob.http.request(method, _filled(path), headers=headers, allow_redirects=False) as answer:
                refused = answer.status == 403
                assert refused != role.covers(_least(method, path)), (method, path, answer.status)
                assert answer.status < 500 or answer.status == 503, (method, path)


async def test_every_api_route_requires_its_scope(served: tuple[str, web.Application], store: Store) -> None:
    owner = ("ada", await make_account(store))
    for operation in OPERATIONS:
        if not operation.permission.scope:
            continue
        for scopes in (
            set(SCOPES) - {operation.permission.scope, operation.permission.scope.replace("read", "write")},
            SCOPES,
        ):
            _, token = await store.api_keys.create("k", owner, tuple(scopes), 0.0)
            path = served[0] + "/api/v1" + _filled(operation.path)
            async with (
                aiohttp.ClientSession() as http,
                http.request(operation.method, path, headers={"Authorization": f"Bearer {token}"}) as answer,
            ):
                assert (answer.status == 403) is (scopes is not SCOPES), (operation.method, path)


async def test_a_route_without_a_permission_is_refused(served: tuple[str, web.Application], ada: Visitor) -> None:
    app = served[1]
    app._state[ROUTE_RULES] = {
        handler: policy for handler, policy in app[ROUTE_RULES].items() if handler.__name__ != "get_search"
    }
    assert (await ada.get("/api/v1/search"))[0] == 403
    assert (await ada.get("/api/v1/overview"))[0] == 200


async def test_the_public_routes_are_the_expected_ones(served: tuple[str, web.Application]) -> None:
    app = served[1]
    for access, known in ((OpenAccess.PUBLIC, OPEN_TO_ALL), (OpenAccess.WEBHOOK, OPEN_TO_HUBS)):
        declared = {
            route.resource.canonical
            for route in app.router.routes()
            if route.resource is not None and app[ROUTE_RULES][route.handler].access is access
        }
        assert declared == known


async def test_an_unknown_route_requires_login(eve: Visitor) -> None:
    assert (await eve.get("/not/a/route/yet"))[0] == 303


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"Origin": "http://evil.example"}, {"csrf": "right"}),
        ({"Origin": "null"}, {"csrf": "right"}),
        ({}, {"csrf": "right"}),
        ({"Origin": "ours"}, {"csrf": "0" * 64}),
        ({"Origin": "ours"}, {}),
        ({"Origin": "ours", "X-CSRF-Token": "wrong"}, {"csrf": "right"}),
    ],
    ids=["another origin", "no telling origin", "no origin", "wrong token", "no token", "wrong token in the header"],
)
async def test_every_change_requires_origin_and_csrf_token(
    served: tuple[str, web.Application], ada: Visitor, headers: dict[str, str], fields: dict[str, str]
) -> None:
    sent = {name: ada.csrf if value == "right" else value for name, value in fields.items()}
    said = {name: ada.origin if value == "ours" else value for name, value in headers.items()}
    for method, path in _routes(served[1]):
        if method in {"GET", "HEAD"} or path in OPEN_TO_HUBS:
            continue
        where = _filled(path)
        async with ada.http.request(method, where, data=sent, headers=said, allow_redirects=False) as answer:
            assert answer.status == 403, (method, path)


async def test_the_admin_token_authenticates_api_requests(served: tuple[str, web.Application]) -> None:
    async with aiohttp.ClientSession(served[0]) as http:
        for token, status in ((TOKEN, 200), (TOKEN + "x", 401), ("", 401)):
            async with http.get("/api/v1/nodes", headers={"Authorization": f"Bearer {token}"}) as answer:
                assert answer.status == status


async def test_every_response_has_security_headers(ada: Visitor) -> None:
    for path in ("/", "/login", "/static/console.css", "/livez", "/api/v1/nodes", "/no/such/page"):
        async with ada.http.get(path) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'")
            assert "unsafe" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Server"] == "coronet"


async def test_pages_have_no_inline_script_or_style(ada: Visitor) -> None:
    for path in ("/", "/channels", "/channels/add", "/nodes", "/login", "/settings", "/log"):
        _, text = await ada.get(path)
        assert "style=" not in text
        assert "<style" not in text
        assert "javascript:" not in text
        assert text.count("<script") == text.count("<script src=")


async def test_a_large_body_is_refused(ada: Visitor) -> None:
    async with ada.http.post("/channels", data=BytesIO(b"x" * 10_000_000), headers={"Origin": ada.origin}) as answer:
        assert answer.status == 413


@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        ("multipart/form-data; boundary=x", b"no such boundary"),
        ("multipart/form-data", b"--x"),
        ("application/x-www-form-urlencoded; charset=no-such-charset", b"csrf=x"),
        ("application/x-www-form-urlencoded", b"csrf=\xff"),
    ],
)
async def test_a_malformed_form_is_refused_without_a_traceback(eve: Visitor, media_type: str, body: bytes) -> None:
    headers = {"Origin": eve.origin, "Content-Type": media_type}
    with capture_logs() as logged:
        async with eve.http.post("/login", data=body, headers=headers) as answer:
            assert answer.status in {400, 403}
    assert logged == []


async def test_an_interrupted_form_logs_no_traceback(eve: Visitor) -> None:
    place = URL(eve.origin)
    head = (
        f"POST /login HTTP/1.1\r\nHost: {place.authority}\r\nOrigin: {eve.origin}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 99\r\n\r\ncsrf="
    )
    with capture_logs() as logged:
        _, writer = await asyncio.open_connection(place.host, place.port)
        writer.write(head.encode())
        await writer.drain()
        assert (await eve.get("/livez"))[0] == 200
        writer.close()
        await writer.wait_closed()
        for _ in range(3):
            assert (await eve.get("/livez"))[0] == 200
    assert logged == []


async def test_a_large_chunked_body_is_refused(ada: Visitor) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(1_000):
            yield b"x" * 10_000

    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    try:
        async with ada.http.post("/api/v1/channels", data=chunks(), headers=headers) as answer:
            assert answer.status == 413
    except aiohttp.ClientConnectionError:
        pass  # closed in our face while we were still talking: refused as well
