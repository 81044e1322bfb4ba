"""API operations for people, delivery, policy, nodes and hosts, and idempotent requests."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

import aiohttp
import pytest_asyncio
from aiohttp import web

from service.feeds.entries.version_parts import VersionParts
from service.model import PollResult
from service.store import Store
from service.store.client import keys
from service.store.coordination.worker_requests import PollReply, WorkerReply
from tests.support.channels import make_channel
from tests.support.console import TOKEN, Asked, make_account, worker
from tests.support.redis_contents import redis_contents
from tests.support.waiting import until

ADA = "ada@example.org"


@pytest_asyncio.fixture
async def api(served: tuple[str, web.Application]) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(f"{served[0]}/api/v1/", headers=headers) as session:
        yield session


async def _ask(
    api: aiohttp.ClientSession, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
) -> tuple[int, Any]:
    async with api.request(method, path, json=body, headers=headers) as answer:
        return answer.status, await answer.json(content_type=None) if await answer.read() else None


async def test_people_are_paged_and_found_with_exact_matches_first(store: Store, api: aiohttp.ClientSession) -> None:
    jids = [f"user{n}@example.org" for n in range(7)]
    for jid in jids:
        await store.users.mark_welcomed(jid)
    found: list[str] = []
    cursor = ""
    while True:
        status, page = await _ask(api, "GET", f"people?limit=3&cursor={cursor}")
        assert status == 200
        found += [person["jid"] for person in page["items"]]
        cursor = page["next"]
        if not cursor:
            break
    assert found == sorted(jids, key=keys.user_id)
    await store.users.mark_welcomed("user1@example.org.uk")
    _, page = await _ask(api, "GET", "people?q=USER1@example.org")
    assert [person["jid"] for person in page["items"]] == ["user1@example.org", "user1@example.org.uk"]
    assert (await _ask(api, "GET", "people?q=nobody"))[1] == {"items": [], "next": ""}
    assert (await _ask(api, "GET", "people?cursor=x"))[0] == 422


async def test_a_person_is_suspended_limited_and_deleted(store: Store, api: aiohttp.ClientSession) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe(ADA, channel.id)
    path = f"people/{keys.user_id(ADA)}"
    status, person = await _ask(api, "PUT", path, {"suspended": True, "most_subscriptions": 7})
    assert (status, person["suspended"], person["most_subscriptions"], person["subscriptions"]) == (200, True, 7, 1)
    _, person = await _ask(api, "PUT", path, {"suspended": False})
    assert (person["suspended"], person["most_subscriptions"]) == (False, None)
    assert await _ask(api, "GET", path) == (200, person)
    assert (await _ask(api, "DELETE", path))[0] == 204
    for method, body in (("GET", None), ("PUT", {"suspended": True}), ("DELETE", None)):
        assert (await _ask(api, method, path, body))[0] == 404
        assert (await _ask(api, method, "people/x", body))[0] == 404
    assert await store.subscriptions.count(channel.id) == 0


async def test_delivery_lists_waiting_people_and_handles_dead_letters(store: Store, api: aiohttp.ClientSession) -> None:
    channel, uid = await make_channel(store), keys.user_id(ADA)
    await store.subscriptions.subscribe(ADA, channel.id)
    for version in (2, 3):
        await store.outbox.enqueue([uid], channel.id, version, 1.0, VersionParts(news=()))
        (batch,) = (await store.outbox.claim([uid], 10, 5.0)).values()
        await store.outbox.move_to_dead_letters(uid, batch.message_id, "gone")
    _, page = await _ask(api, "GET", "dead-letters?limit=1")
    assert [(letter["jid"], letter["why"], letter["items"]) for letter in page["items"]] == [(ADA, "gone", 1)]
    _, rest = await _ask(api, "GET", f"dead-letters?cursor={page['next']}")
    (older,) = rest["items"]
    assert (await _ask(api, "GET", "delivery"))[1]["dead_letters"] == 2
    assert (await _ask(api, "POST", f"dead-letters/{older['id']}/requeue"))[0] == 204
    assert (await _ask(api, "DELETE", f"dead-letters/{page['items'][0]['id']}"))[0] == 204
    _, told = await _ask(api, "GET", "delivery")
    assert (told["people"], told["dead_letters"]) == (1, 0)
    assert [(person["jid"], person["queued"]) for person in told["longest"]] == [(ADA, 1)]
    for method, path in (("POST", f"dead-letters/{older['id']}/requeue"), ("DELETE", f"dead-letters/{older['id']}")):
        assert (await _ask(api, method, path))[0] == 404
    assert (await _ask(api, "DELETE", "dead-letters/x"))[0] == 404


async def test_the_policy_is_previewed_set_and_undone_without_lost_updates(
    store: Store, api: aiohttp.ClientSession
) -> None:
    await make_channel(store, listed=True)
    aims = {"goal": "fair", "longest_wait_s": 600.0}
    status, told = await _ask(api, "POST", "policy/what-if", aims)
    assert (status, told["channels"]) == (200, 1)
    assert told["then"]["polls_per_minute"] > 0
    assert (await _ask(api, "GET", "policy"))[1]["set"] is False
    status, now = await _ask(api, "PUT", "policy", {"aims": aims, "seen": 0})
    assert (status, now["aims"]["goal"], now["revision"], now["history"][0]["number"]) == (200, "fair", 1, 1)
    assert now["aims"]["levels"] == now["usual"]["levels"] == "continuous"
    assert (await _ask(api, "PUT", "policy", {"aims": {"goal": "fast"}, "seen": 0}))[0] == 409
    status, now = await _ask(api, "POST", "policy/undo")
    assert (status, now["set"], now["revision"]) == (200, False, 2)
    assert (await _ask(api, "PUT", "policy", {"aims": {"goal": "best"}}))[0] == 422
    _, log = await _ask(api, "GET", "log")
    assert [(noted["deed"]["status"], noted["deed"]["on"]) for noted in log["items"]][-1] == (200, "/api/v1/policy")
    assert len(log["items"]) == 4, "a question is no deed"


async def test_a_node_is_drained_and_its_worker_restored(store: Store, api: aiohttp.ClientSession) -> None:
    await store.ring.join("w1", "", 60.0, lambda _: "a" * 40)
    assert (await _ask(api, "POST", f"nodes/{'a' * 40}/drain"))[0] == 204
    _, nodes = await _ask(api, "GET", "nodes")
    assert (nodes["items"], nodes["drained"]) == ([], ["w1"])
    assert (await _ask(api, "POST", f"nodes/{'a' * 40}/drain"))[0] == 404
    assert (await _ask(api, "POST", "workers/w1/restore"))[0] == 204
    assert (await _ask(api, "POST", "workers/w1/restore"))[0] == 404
    assert (await _ask(api, "GET", "nodes"))[1]["drained"] == []


async def test_many_channels_are_changed_at_once(store: Store, api: aiohttp.ClientSession) -> None:
    made = [(await make_channel(store, f"https://example.org/{n}")).id for n in range(3)]
    bulk = {"action": "tag", "channels": made, "tag": "News"}
    assert await _ask(api, "POST", "channels/bulk", bulk) == (200, {"done": 3, "left": 0, "problems": []})
    assert len((await _ask(api, "GET", "channels?tag=news"))[1]["items"]) == 3
    wrongs: list[dict[str, object]] = [{"tag": "two words"}, {"channels": []}, {"channels": ["x"]}, {"action": "fly"}]
    for wrong in wrongs:
        assert (await _ask(api, "POST", "channels/bulk", bulk | wrong))[0] == 422


async def test_sites_are_listed_by_number_of_channels(store: Store, api: aiohttp.ClientSession) -> None:
    for url in ("https://a.example.org/1", "https://b.example.org/2", "https://example.net/", "https://example.com/"):
        await make_channel(store, url)
    await store.request_budgets.set_site_rate("example.net", 2.5)
    _, first = await _ask(api, "GET", "hosts?limit=2")
    assert [(site["site"], site["channels"]) for site in first["items"]] == [("example.org", 2), ("example.com", 1)]
    _, rest = await _ask(api, "GET", f"hosts?limit=2&cursor={first['next']}")
    assert [(site["site"], site["requests_per_s"]) for site in rest["items"]] == [("example.net", 2.5)]
    assert rest["next"] == ""
    assert len((await _ask(api, "GET", "hosts?q=example.n"))[1]["items"]) == 1
    assert (await _ask(api, "GET", "hosts?cursor=x"))[0] == 422


async def test_a_repeated_request_is_executed_once(store: Store, api: aiohttp.ClientSession) -> None:
    channel, polls = await make_channel(store), []

    def answer(asked: Asked) -> WorkerReply:
        polls.append(asked)
        return PollReply(PollResult("a" * 40, float(len(polls)), "unchanged", 304))

    path, one = f"channels/{channel.id}/poll", {"Idempotency-Key": "one"}
    async with worker(store, answer):
        first = await _ask(api, "POST", path, headers=one)
        async with api.post(path, headers=one) as again:
            assert (again.status, await again.json(), again.headers["Idempotency-Replayed"]) == (*first, "true")
        assert (await _ask(api, "POST", path, headers={"Idempotency-Key": "two"}))[1]["at_s"] == 2.0
    status, problem = await _ask(api, "POST", "channels/bulk", {}, headers=one)
    assert (status, "different request" in problem["detail"], len(polls)) == (422, True, 2)
    assert len((await _ask(api, "GET", "log"))[1]["items"]) == 2


async def test_a_failed_request_can_be_repeated_with_the_same_key(store: Store, api: aiohttp.ClientSession) -> None:
    path, one = f"channels/{'a' * 40}/poll", {"Idempotency-Key": "one"}
    for _ in range(2):
        assert (await _ask(api, "POST", path, headers=one))[0] == 404
    for key in ("", "x" * 256):
        assert (await _ask(api, "POST", path, headers={"Idempotency-Key": key}))[0] == 422
    assert not [key for key in await store.redis.call("KEYS", "*") if b"repeat" in key]


async def test_a_response_with_a_secret_is_not_stored(store: Store, api: aiohttp.ClientSession) -> None:
    await make_account(store)
    one = {"Idempotency-Key": "one"}
    status, made = await _ask(api, "POST", "accounts", {"name": "bob", "role": "viewer"}, headers=one)
    assert status == 201
    token = made["link"].partition("=")[2]
    assert not [value for value in (await redis_contents(store)).values() if token.encode() in value]
    status, problem = await _ask(api, "POST", "accounts", {"name": "bob", "role": "viewer"}, headers=one)
    assert (status, "contained a secret" in problem["detail"]) == (409, True)


async def test_a_request_in_progress_is_not_repeated(store: Store, api: aiohttp.ClientSession) -> None:
    channel = await make_channel(store)
    path, one = f"channels/{channel.id}/poll", {"Idempotency-Key": "one"}
    await store.ring.join("deaf", "", 60.0, lambda _: "a" * 40)
    first = asyncio.create_task(_ask(api, "POST", path, headers=one))
    await until(lambda: store.redis.call("EXISTS", keys.inbox("a" * 40)), "the first request asks the worker")
    status, problem = await _ask(api, "POST", path, headers=one)
    assert (status, "still in progress" in problem["detail"], first.done()) == (409, True, False)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
