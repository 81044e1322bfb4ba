"""The JSON API and its document."""

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from openapi_spec_validator import OpenAPIV31SpecValidator

from service.model import FeedLink, PollResult
from service.store import Store
from service.store.requests import Polled, Probed
from tests.support.channels import make_channel
from tests.support.console import TOKEN, worker


@pytest_asyncio.fixture
async def api(served: tuple[str, web.Application]) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(f"{served[0]}/api/v1/", headers=headers) as session:
        yield session


async def _ask(api: aiohttp.ClientSession, method: str, path: str, body: object = None) -> tuple[int, Any]:
    async with api.request(method, path, json=body) as answer:
        return answer.status, await answer.json(content_type=None)


async def test_the_document_is_valid_and_names_every_route(
    served: tuple[str, web.Application], api: aiohttp.ClientSession
) -> None:
    status, document = await _ask(api, "GET", "openapi.json")
    assert status == 200
    OpenAPIV31SpecValidator(document).validate()
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    served_routes = {
        (route.method, route.resource.canonical.removeprefix("/api/v1"))
        for route in served[1].router.routes()
        if route.resource is not None and route.resource.canonical.startswith("/api/v1/") and route.method != "HEAD"
    }
    assert described == served_routes - {("GET", "/openapi.json")}


async def test_a_url_becomes_a_channel_that_is_polled(store: Store, api: aiohttp.ClientSession) -> None:
    channel = await make_channel(store)
    async with worker(store, lambda _: Probed(channel)):
        status, made = await _ask(api, "POST", "channels", {"url": channel.url})
    assert status == 201
    assert made["channel"]["listed"] is True
    assert made["channel"]["state"] == "polled"
    assert made["owner"]["name"] == "w1"
    assert await _ask(api, "GET", f"channels/{channel.id}") == (200, made)


async def test_several_feeds_are_answered_as_choices(store: Store, api: aiohttp.ClientSession) -> None:
    async with worker(store, lambda _: Probed(choices=(FeedLink("https://example.org/a", "A"),))):
        status, answer = await _ask(api, "POST", "channels", {"url": "https://example.org/"})
    assert (status, answer) == (300, {"choices": [{"url": "https://example.org/a", "title": "A"}]})


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"url": "ftp://example.org/"}, 422, "bad-url"),
        ({"url": ""}, 422, "user-error"),
        ({"url": "x" * 2001}, 422, "user-error"),
        ({"url": 7}, 422, "user-error"),
        ({"url": "https://example.org/", "surprise": 1}, 422, "user-error"),
        ([], 422, "user-error"),
        ({"url": "https://example.org/"}, 503, "no-worker"),
    ],
)
async def test_what_cannot_be_added_is_a_problem(
    api: aiohttp.ClientSession, body: object, status: int, code: str
) -> None:
    async with api.post("channels", json=body) as answer:
        problem = await answer.json(content_type="application/problem+json")
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"] == f"urn:coronet:problem:{code}"
    assert problem["detail"]


@pytest.mark.parametrize(("kind", "status"), [("application/json", 400), ("text/plain", 415)])
async def test_a_body_that_is_no_json_is_a_problem(api: aiohttp.ClientSession, kind: str, status: int) -> None:
    async with api.post("channels", data=b"{", headers={"Content-Type": kind}) as answer:
        assert answer.status == status
        assert answer.content_type == "application/problem+json"


async def test_cursors_lead_through_all_channels_once(store: Store, api: aiohttp.ClientSession) -> None:
    made = [(await make_channel(store, f"https://example.org/{i}")).id for i in range(7)]
    found: list[str] = []
    cursor = ""
    while True:
        _, page = await _ask(api, "GET", f"channels?limit=3&q=example&cursor={cursor}")
        found += [item["id"] for item in page["items"]]
        cursor = page["next"]
        if not cursor:
            break
    assert found == sorted(made)


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "cursor=nonsense"])
async def test_an_impossible_page_is_a_problem(api: aiohttp.ClientSession, query: str) -> None:
    assert (await _ask(api, "GET", f"channels?{query}"))[0] == 422


async def test_a_channel_is_listed_unlisted_polled_and_deleted(store: Store, api: aiohttp.ClientSession) -> None:
    channel = await make_channel(store)
    path = f"channels/{channel.id}"
    assert (await _ask(api, "PATCH", path, {"listed": True}))[1]["channel"]["state"] == "polled"
    assert (await _ask(api, "PATCH", path, {"listed": False}))[1]["channel"]["state"] == "idle"
    async with worker(store, lambda _: Polled(PollResult("a" * 40, 9.0, "unchanged", 304))):
        status, polled = await _ask(api, "POST", f"{path}/poll")
    assert (status, polled["outcome"]) == (200, "unchanged")
    assert (await _ask(api, "DELETE", path))[0] == 204
    assert (await _ask(api, "DELETE", path))[1]["code"] == "not-found"


async def test_nodes_and_overview_agree(store: Store, api: aiohttp.ClientSession) -> None:
    async with worker(store, lambda _: Probed()):
        _, nodes = await _ask(api, "GET", "nodes")
        _, fleet = await _ask(api, "GET", "overview")
    assert [node["name"] for node in nodes["items"]] == ["w1"]
    assert fleet["nodes"] == 1


async def test_what_is_not_there_is_a_problem_too(api: aiohttp.ClientSession) -> None:
    assert (await _ask(api, "GET", "nothing"))[1]["status"] == 404
    assert (await _ask(api, "PUT", "nodes"))[1]["status"] == 405
