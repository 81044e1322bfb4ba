"""The console under a path of its own (``console_base_path``), which the proxy passes on."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from service.console.auth.passwords import Passwords
from service.settings import SettingsInvalid, load
from service.store import Store
from service.store.console.accounts import Account
from service.store.coordination.worker_requests import ContentReply, ProbeReply, WorkerReply
from tests.support.console import Asked, Visitor, console, logged_in, stranger, worker
from tests.support.console_pages import fill_every_page

BASE = "/coronet"
PASSWORD = "correct horse battery"
_LINK = re.compile(r"""(?:href|src|action|formaction|hx-get|hx-post|data-[a-z]+)=["'](/[^"']*)""")
_ABSOLUTE_PATH = re.compile(r"""["'`](/[a-z][^"'`]*)["'`]""")


@pytest_asyncio.fixture
async def url(store: Store) -> AsyncIterator[str]:
    async with console(store, console_base_path=BASE) as (running, _):
        yield running


@pytest_asyncio.fixture
async def ada(store: Store, url: str) -> AsyncIterator[Visitor]:
    async with logged_in(url, store) as visitor:
        yield visitor


def _answer(asked: Asked) -> WorkerReply:
    return ContentReply(3, (), "near", 2, "south") if type(asked).__name__ == "ContentRequest" else ProbeReply()


async def test_every_link_of_every_page_begins_with_the_path(store: Store, url: str, ada: Visitor) -> None:
    paths = await fill_every_page(store)
    links: set[str] = set()
    async with stranger(url) as somebody, worker(store, _answer):
        pages = [await ada.get(BASE + path) for path in paths]
        pages.append(await somebody.get(f"{BASE}/login"))
    for path, (status, text) in zip([*paths, "/login"], pages, strict=True):
        assert status < 500, path
        assert [link for link in _LINK.findall(text) if not link.startswith(f"{BASE}/")] == [], path
        links.update(_LINK.findall(text))
    pages_and_files = {link for link in links if "/static/" in link or re.fullmatch(rf"{BASE}/[a-z]+", link)}
    for link in pages_and_files - {f"{BASE}/logout", f"{BASE}/live"}:
        status, text = await ada.get(link)
        assert status == 200, link
        if link.endswith(".js") and "/vendor/" not in link:
            assert _ABSOLUTE_PATH.findall(text) == [], link


async def test_redirects_cookies_and_logins_stay_below_the_path(store: Store, url: str) -> None:
    assert await store.accounts.change("ada", Account(await Passwords().hash(PASSWORD), 0.0), {})
    async with stranger(url) as somebody:
        for path in ("/", BASE):
            async with somebody.http.get(path, allow_redirects=False) as answer:
                assert (answer.status, answer.headers["Location"]) == (303, f"{BASE}/")
        async with somebody.http.get(f"{BASE}/nodes?channel=x", allow_redirects=False) as answer:
            assert answer.headers["Location"].startswith(f"{BASE}/login?next=/nodes")
        sent = {"csrf": somebody.csrf, "name": "ada", "password": PASSWORD, "next": "/nodes"}
        headers = {"Origin": url}
        async with somebody.http.post(f"{BASE}/login", data=sent, headers=headers, allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (303, f"{BASE}/nodes")
            assert {cookie["path"] for cookie in answer.cookies.values()} == {f"{BASE}/"}


async def test_streams_health_api_and_its_document_are_below_the_path(url: str, ada: Visitor) -> None:
    async with ada.http.get(f"{BASE}/live", headers={"Accept": "text/event-stream"}) as events:
        assert await events.content.readline() == b"retry: 3000\n"
    assert [(await ada.get(path))[0] for path in ("/livez", "/readyz", f"{BASE}/livez")] == [200] * 3
    async with ada.http.get(f"{BASE}/api/v1/openapi.json") as answer:
        assert (await answer.json())["servers"] == [{"url": f"{BASE}/api/v1"}]
    async with stranger(url) as somebody:
        async with somebody.http.get(f"{BASE}/api/v1/nodes", allow_redirects=False) as answer:
            assert (answer.status, answer.content_type) == (401, "application/problem+json")
        assert (await somebody.get("/channels"))[0] == 303
        assert (await somebody.get(f"{BASE}/websub/{'0' * 40}/token"))[0] == 404


async def test_links_for_people_contain_the_path(url: str, ada: Visitor) -> None:
    _, page = await ada.post(f"{BASE}/settings/accounts", name="cyd", role="viewer")
    assert f"{url}{BASE}/join?token=" in page


def test_a_public_url_with_another_path_is_refused() -> None:
    assert load({}, console_base_path="/a/b/", console_public_url="https://example.org/a/b").console_base_path == "/a/b"
    with pytest.raises(SettingsInvalid, match="console_public_url must end with console_base_path"):
        load({}, console_base_path=BASE, console_public_url="https://example.org")
    for path in ("coronet", "/a//b", '/"', "https://example.org/coronet"):
        with pytest.raises(SettingsInvalid, match="is not a path"):
            load({}, console_base_path=path)
