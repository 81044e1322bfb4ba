"""The JSON API and its OpenAPI document."""

import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from openapi_spec_validator import OpenAPIV31SpecValidator

from service.discovery.partial_lookup.strategies import Fixed, strategy_name
from service.discovery.partial_lookup.strategy_choice import (
    DirectoryChoice,
    DirectoryMeasurements,
    StrategyChoice,
    choose,
)
from service.model import Entry, FeedLink, PollingHints, PollResult
from service.store import Store
from service.store.client import keys
from service.store.coordination.worker_requests import (
    ContentReply,
    ContentRequest,
    DirectoriesReply,
    DirectoriesRequest,
    PollReply,
    ProbeReply,
    ProbeRequest,
    ShareReply,
    WorkerReply,
)
from tests.support.channels import make_channel, register_names, restate
from tests.support.console import TOKEN, Asked, explained, worker


@pytest_asyncio.fixture
async def api(served: tuple[str, web.Application]) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(f"{served[0]}/api/v1/", headers=headers) as session:
        yield session


async def _ask(api: aiohttp.ClientSession, method: str, path: str, body: object = None) -> tuple[int, Any]:
    async with api.request(method, path, json=body) as answer:
        return answer.status, await answer.json(content_type=None)


async def test_the_openapi_document_is_valid_and_complete(
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


async def test_adding_a_url_creates_a_polled_channel(store: Store, api: aiohttp.ClientSession) -> None:
    channel = await make_channel(store)
    async with worker(store, lambda _: ProbeReply(channel)):
        status, made = await _ask(api, "POST", "channels", {"url": channel.url})
    assert status == 201
    assert made["channel"]["listed"] is True
    assert made["channel"]["state"] == "polled"
    assert made["owner"]["name"] == "w1"
    _, shown = await _ask(api, "GET", f"channels/{channel.id}")
    assert shown == made | {"polling_unknown": shown["polling_unknown"]}


async def test_several_feeds_are_returned_as_choices(store: Store, api: aiohttp.ClientSession) -> None:
    async with worker(store, lambda _: ProbeReply(choices=(FeedLink("https://example.org/a", "A"),))):
        status, answer = await _ask(api, "POST", "channels", {"url": "https://example.org/"})
    assert (status, answer) == (300, {"choices": [{"url": "https://example.org/a", "title": "A"}]})


async def test_a_page_without_a_feed_is_refused_with_a_hint(store: Store, api: aiohttp.ClientSession) -> None:
    async with worker(store, lambda _: ProbeReply(page=True)):
        status, problem = await _ask(api, "POST", "channels", {"url": "example.org"})
    assert (status, problem["code"]) == (422, "user-error")
    assert "https://example.org/ is a page without a feed" in problem["detail"]
    assert "`as_page`" in problem["detail"]


@pytest.mark.parametrize(
    ("wanted", "url"),
    [
        ({"as_page": True}, "https://example.org/prices"),
        ({"selector": "main table"}, "https://example.org/prices#main%20table"),
    ],
)
async def test_a_page_or_a_part_of_it_can_be_added(
    store: Store, api: aiohttp.ClientSession, wanted: dict[str, object], url: str
) -> None:
    asked = []
    channel = await make_channel(store, url, kind="page")

    def answer(body: Asked) -> WorkerReply:
        asked.append(body)
        return ProbeReply(channel)

    async with worker(store, answer):
        status, made = await _ask(api, "POST", "channels", {"url": "example.org/prices", **wanted})
    assert asked == [ProbeRequest(url, as_page=True)]
    assert (status, made["channel"]["kind"]) == (201, "page")
    assert made["channel"]["selector"] == wanted.get("selector", "")


async def test_channel_details_have_condition_successor_and_hints(store: Store, api: aiohttp.ClientSession) -> None:
    channel, successor = await make_channel(store), await make_channel(store, "https://example.net/feed")
    await store.redis.call("HSET", keys.channel(channel.id), "condition", "dead", "moved_to", successor.id)
    await restate(store, channel.id, hints=PollingHints(ttl_s=3600.0))
    await store.request_budgets.pause(channel.id, 60.0)
    _, about = await _ask(api, "GET", f"channels/{channel.id}")
    assert (about["channel"]["condition"], about["channel"]["moved_to"]) == ("dead", successor.id)
    assert about["wishes"] == {"ttl_s": 3600.0}
    assert 0.0 < about["paused_s"] <= 60.0


async def test_a_channel_has_its_polling_level_and_rate(store: Store, api: aiohttp.ClientSession) -> None:
    channel = await make_channel(store, listed=True)
    now_s = time.time()
    why = explained(channel.id, ["0" * 40, "8" * 40], ring_nodes=8, now_s=now_s)
    async with worker(store, lambda _: ProbeReply(), reason=why):
        _, detail = await _ask(api, "GET", f"channels/{channel.id}")
        polling = detail["polling"]
        assert 0 < polling.pop("next_poll_at") - now_s <= 300
        assert polling == {
            "level": 2.0,
            "nodes": 2,
            "polls_per_hour": 12.0,
            "mean_wait_s": 150.0,
            "bound_by": "nodes",
        }
        assert detail["polling_unknown"] == ""
        await store.admin_settings.pause([channel.id], 7_200.0)
        _, detail = await _ask(api, "GET", f"channels/{channel.id}")
        assert 7_100 < detail["polling"]["next_poll_at"] - now_s < 7_800


async def test_the_reason_is_stated_if_the_owner_of_a_channel_does_not_respond(
    store: Store, api: aiohttp.ClientSession
) -> None:
    channel = await make_channel(store, listed=True)
    await store.ring.join("silent", "", 600.0, lambda _: "0" * 40)
    status, detail = await _ask(api, "GET", f"channels/{channel.id}")
    assert (status, detail["polling"], detail["why"]) == (200, None, None)
    assert "No worker answered" in detail["polling_unknown"]


async def test_content_has_its_source_and_falls_back_to_the_store(
    store: Store, api: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel = await make_channel(store)
    shown = ContentReply(7, (Entry("a", "From near by"),), "near", 2, "w2")

    def answer(body: Asked) -> WorkerReply:
        assert body == ContentRequest(channel.id)
        return shown

    async with worker(store, answer):
        status, found = await _ask(api, "GET", f"channels/{channel.id}/content")
    assert (status, found["source"], found["hops"], found["worker"]) == (200, "near", 2, "w2")
    assert (found["version"], found["latest"]) == (7, [{"key": "a", "title": "From near by"}])
    monkeypatch.setattr("service.store.coordination.worker_requests._CONTENT_TIMEOUT_S", 0.3)
    status, found = await _ask(api, "GET", f"channels/{channel.id}/content")
    assert (status, found["source"], found["version"]) == (200, "store", 1)
    assert [entry["title"] for entry in found["latest"]] == ["First"]
    status, _ = await _ask(api, "GET", f"channels/{'0' * 40}/content")
    assert status == 404


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"url": "https://example.org/", "selector": "x" * 201}, 422, "user-error"),
        ({"url": "ftp://example.org/"}, 422, "bad-url"),
        ({"url": ""}, 422, "user-error"),
        ({"url": "x" * 2001}, 422, "user-error"),
        ({"url": 7}, 422, "user-error"),
        ({"url": "https://example.org/", "surprise": 1}, 422, "user-error"),
        ([], 422, "user-error"),
        ({"url": "https://example.org/"}, 503, "no-worker"),
    ],
)
async def test_an_invalid_channel_is_refused(api: aiohttp.ClientSession, body: object, status: int, code: str) -> None:
    async with api.post("channels", json=body) as answer:
        problem = await answer.json(content_type="application/problem+json")
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["type"] == f"urn:coronet:problem:{code}"
    assert problem["detail"]


@pytest.mark.parametrize(("kind", "status"), [("application/json", 400), ("text/plain", 415)])
async def test_a_body_that_is_not_json_is_refused(api: aiohttp.ClientSession, kind: str, status: int) -> None:
    async with api.post("channels", data=b"{", headers={"Content-Type": kind}) as answer:
        assert answer.status == status
        assert answer.content_type == "application/problem+json"


async def test_cursors_visit_every_channel_once(store: Store, api: aiohttp.ClientSession) -> None:
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
async def test_invalid_paging_is_refused(api: aiohttp.ClientSession, query: str) -> None:
    assert (await _ask(api, "GET", f"channels?{query}"))[0] == 422


async def test_a_channel_is_listed_unlisted_polled_and_deleted(store: Store, api: aiohttp.ClientSession) -> None:
    channel = await make_channel(store)
    path = f"channels/{channel.id}"
    assert (await _ask(api, "PATCH", path, {"listed": True}))[1]["channel"]["state"] == "polled"
    assert (await _ask(api, "PATCH", path, {"listed": False}))[1]["channel"]["state"] == "idle"
    async with worker(store, lambda _: PollReply(PollResult("a" * 40, 9.0, "unchanged", 304))):
        status, polled = await _ask(api, "POST", f"{path}/poll")
    assert (status, polled["outcome"]) == (200, "unchanged")
    assert (await _ask(api, "DELETE", path))[0] == 204
    assert (await _ask(api, "DELETE", path))[1]["code"] == "not-found"


async def test_nodes_and_overview_agree(store: Store, api: aiohttp.ClientSession) -> None:
    async with worker(store, lambda _: ProbeReply()):
        _, nodes = await _ask(api, "GET", "nodes")
        _, fleet = await _ask(api, "GET", "overview")
    assert [node["name"] for node in nodes["items"]] == ["w1"]
    assert fleet["nodes"] == 1


async def test_a_request_limit_is_set_and_reset_for_the_whole_site(api: aiohttp.ClientSession) -> None:
    usual = {"site": "example.co.uk", "requests_per_s": 1.0, "set": False, "paused_s": 0.0}
    other = {"site": "example.co.uk", "requests_per_s": 2.5, "set": True, "paused_s": 0.0}
    assert await _ask(api, "GET", "hosts/www.example.co.uk") == (200, usual)
    assert await _ask(api, "PUT", "hosts/www.example.co.uk", {"requests_per_s": 2.5}) == (200, other)
    assert await _ask(api, "GET", "hosts/NEWS.example.co.uk") == (200, other)
    assert (await _ask(api, "DELETE", "hosts/example.co.uk"))[0] == 204
    assert await _ask(api, "GET", "hosts/www.example.co.uk") == (200, usual)


@pytest.mark.parametrize("rate", [0, -1, 101, "1", None])
async def test_an_invalid_rate_is_refused(api: aiohttp.ClientSession, rate: object) -> None:
    assert (await _ask(api, "PUT", "hosts/example.org", {"requests_per_s": rate}))[0] == 422


@pytest.mark.parametrize("host", ["intranet", "a..b", "u:p@example.org", "example.org%20"])
async def test_an_invalid_host_has_no_rate(api: aiohttp.ClientSession, host: str) -> None:
    assert (await _ask(api, "GET", f"hosts/{host}"))[0] == 422


async def test_unknown_routes_return_problem_documents(api: aiohttp.ClientSession) -> None:
    assert (await _ask(api, "GET", "nothing"))[1]["status"] == 404
    assert (await _ask(api, "PUT", "nodes"))[1]["status"] == 405


async def test_a_search_explains_its_results(store: Store, api: aiohttp.ClientSession) -> None:
    channel = await make_channel(store, listed=True)
    await register_names(store, [(channel.id, 0)])
    status, told = await _ask(api, "GET", "search?q=host=example.org%20type=feed%20limit=5")
    assert status == 200
    assert [item["channel"] for item in told["items"]] == [channel.id]
    asked = [each for clause in told["clauses"] for each in clause["alternatives"]]
    assert [each["pair"] for each in asked] == ["host=example.org", "type=feed"]
    assert {(each["names"], each["partitions"], each["replicas"]) for each in asked} == {(1, 1, 1)}
    assert (told["source"], told["total"], told["has_more"]) == ("matrices", 1, False)
    assert await _ask(api, "GET", "matrices") == (200, {"items": []})


async def test_memory_directories_have_strategies_and_reasons(store: Store, api: aiohttp.ClientSession) -> None:
    assert await _ask(api, "GET", "directories") == (200, {"items": []})
    measured = DirectoryMeasurements(target=100, entries=1000, servers=20, updates_per_lookup=0.5)
    async with worker(store, lambda _: DirectoriesReply((DirectoryChoice("tag=python", measured, choose(measured)),))):
        status, told = await _ask(api, "GET", "directories")
    assert status == 200
    (item,) = told["items"]
    assert (item["pair"], item["target"], item["entries"], item["servers"]) == ("tag=python", 100, 1000, 20)
    assert item["strategy"] == strategy_name(choose(measured).strategy)
    assert item["reasons"][0]["rule"] == "many-updates"
    assert item["reasons"][0]["words"].startswith("Many updates per lookup")
    assert (item["reasons"][0]["value"], item["reasons"][0]["bound"]) == (0.5, 0.1)
    assert item["coverage"] <= item["entries"] < item["stored"] + item["coverage"]
    assert 1 < item["messages_per_update"] <= 21


async def test_a_memory_directory_is_measured(store: Store, api: aiohttp.ClientSession) -> None:
    chosen = DirectoryChoice("tag=python", DirectoryMeasurements(2, 4, 2, 0.5), StrategyChoice(Fixed(2), ()))

    def answer(asked: Asked) -> WorkerReply:
        return (
            DirectoriesReply((chosen,)) if isinstance(asked, DirectoriesRequest) else ShareReply(("a" * 40, "b" * 40))
        )

    async with worker(store, answer):
        status, told = await _ask(api, "GET", "directories/metrics?pair=tag=python")
        assert (status, told["answered"], told["coverage"], told["entries"]) == (200, 1, 2, 4)
        assert (await _ask(api, "GET", "directories/metrics?pair=tag=ruby"))[0] == 404


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "What should I search for?"),
        ("limit=5", "What should I search for?"),
        ("colour=red", "I don't know “colour=”"),
        ("tag=%00", "“tag=?” contains an invisible character."),
        ("tag=a%E2%80%AEb", "“tag=a?b” contains an invisible character."),
        ("+".join(f"tag=t{number}" for number in range(200)), "That's 200 conditions; the maximum is 16."),
        ("+".join(f"tag=t{number}" for number in range(1000)), "That's longer than 3,000 characters"),
        ("tag=" + "x" * 200, "The value of “tag” has 200 characters; the maximum is 100."),
        ("tag=" + "x" * 60_000, "That's longer than 3,000 characters"),
    ],
    ids=range(9),
)
async def test_an_invalid_search_is_refused_without_side_effects(
    store: Store, api: aiohttp.ClientSession, query: str, words: str
) -> None:
    before = await store.redis.call("KEYS", "*")
    status, problem = await _ask(api, "GET", f"search?q={query}")
    assert (status, problem["code"]) == (422, "bad-query")
    assert words in problem["detail"]
    assert await store.redis.call("KEYS", "*") == before


async def test_a_very_long_search_is_not_read(store: Store, api: aiohttp.ClientSession) -> None:
    before = await store.redis.call("KEYS", "*")
    async with api.get("search?q=tag=" + "x" * 2**20) as answer:
        assert answer.status == 400
        assert len(await answer.text()) < 500
    assert await store.redis.call("KEYS", "*") == before
    assert (await _ask(api, "GET", "search?q=tag=x"))[0] == 200
