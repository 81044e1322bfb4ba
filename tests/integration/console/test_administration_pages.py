"""Pages about policy, hosts, nodes, shards, people and delivery."""

import json
import platform
import re
import time
from importlib.metadata import version
from urllib.parse import quote

import aiohttp
import pytest
from aiohttp import web

from service.console.app_keys import METRICS
from service.corona.fleet_policy import FleetObjective, Goal
from service.feeds.canonical_urls import channel_id
from service.feeds.entries.duplicate_articles import hash_version
from service.feeds.websub_protocol import HubState, HubTopic
from service.model import Change, Channel, Entry, PollingHints, PollResult, Validators
from service.net.health_endpoints import serve_health
from service.net.internal_clients import ProcessClient
from service.store import Store
from service.store.channels.channel_records import Snapshot
from service.store.client import keys
from service.store.console.accounts import Role
from service.store.coordination.worker_requests import ContentReply, PollReply, ProbeReply, ProgressReply
from tests.support.channels import change, make_channel, polled, publish
from tests.support.console import TOKEN, Visitor, console, logged_in, worker

WHAT_IF = "longest_wait_s=1+h&demand_factor=1&delay_s=60&budget_polls_per_minute="


async def test_a_policy_is_previewed_before_it_is_applied(store: Store, ada: Visitor) -> None:
    await make_channel(store, listed=True)
    _, text = await ada.get(f"/policy?goal=fair&{WHAT_IF}")
    assert "Effect</h2>" in text
    assert "Apply: Fair, demand factor 1, maximum delay 1 h" in text
    assert await store.fleet_policy.get() is None


async def test_the_policy_page_shows_what_limits_channels_and_the_longest_delays(store: Store, ada: Visitor) -> None:
    channels = [await make_channel(store, f"https://site{number}.example/feed", listed=True) for number in range(10)]
    await store.subscriptions.subscribe("bob@example.org", channels[0].id)
    _, text = await ada.get(f"/policy?goal=lite&{WHAT_IF}0.001")
    assert "100 % of the channels have the same limit" in text
    assert "Raise the poll budget or the maximum delay." in text
    limits = text.partition("Limiting factors after the change")[2].partition("</table>")[0]
    assert "The fleet&#39;s poll budget is too small" in limits
    assert "100 %" in limits
    slowest = text.partition("Longest delays after the change")[2].partition("</table>")[0]
    assert sum(f'href="/channels/{channel.id}"' in slowest for channel in channels) == 5


async def test_a_policy_preview_applies_polling_hints_and_omits_paused_channels(store: Store, ada: Visitor) -> None:
    hourly = Channel(channel_id("https://hourly.example/"), "https://hourly.example/", created_s=1.0, listed=True)
    snapshot = Snapshot(Validators(), b"", "Hourly", "", PollingHints(update_period_s=3_600.0))
    await store.channels.create(hourly, snapshot, [], 1.0)
    paused = await make_channel(store, listed=True)
    await store.admin_settings.pause([paused.id], 7_200.0)
    _, text = await ada.get(f"/policy?goal=lite&levels=2&demand_factor=9&{WHAT_IF}")
    limits = text.partition("Limiting factors after the change")[2].partition("</table>")[0]
    assert "At the interval that the publisher asks for" in limits
    assert "100 %" in limits
    slowest = text.partition("Longest delays after the change")[2].partition("</table>")[0]
    assert f'href="/channels/{hourly.id}"' in slowest
    assert "30 min" in slowest
    assert paused.id not in slowest


async def test_a_policy_is_applied_and_undone_with_a_history(store: Store, ada: Visitor) -> None:
    await make_channel(store, listed=True)
    sent = {"goal": "fast", "longest_wait_s": "1 h", "delay_s": "30 s", "demand_factor": "0.5"}
    assert await ada.post("/policy", seen="0", **sent) == (303, "/policy?applied=1")
    aims = await store.fleet_policy.get()
    assert aims == FleetObjective(Goal.FAST, demand_factor=0.5, delay_s=30.0, longest_wait_s=3600.0)
    _, text = await ada.get("/policy")
    assert "Fast, mean delay 30 s, maximum delay 1 h" in text
    assert await ada.post("/policy/restore", to="0", seen="1") == (303, "/policy?applied=1")
    assert await store.fleet_policy.get() is None
    assert await ada.post("/policy/restore", to="1", seen="2") == (303, "/policy?applied=1")
    assert await store.fleet_policy.get() == aims
    assert [revision.by for revision in await store.fleet_policy.history()] == ["ada"] * 3


async def test_a_concurrent_policy_change_is_not_overwritten(store: Store, ada: Visitor) -> None:
    await store.fleet_policy.set(FleetObjective(goal=Goal.FAIR), by="bob")
    status, text = await ada.post("/policy", seen="0", goal="lite")
    assert status == 409
    assert "Someone else has changed the policy" in text
    assert await store.fleet_policy.get() == FleetObjective(goal=Goal.FAIR)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"goal": "best"}, "Invalid policy"),
        ({"goal": "lite", "longest_wait_s": "soon"}, "is not a duration"),
        ({"goal": "lite", "budget_polls_per_minute": "many"}, "is not a number"),
        ({"goal": "lite", "demand_factor": "-1"}, "Invalid policy"),
    ],
)
async def test_an_invalid_policy_is_refused(ada: Visitor, fields: dict[str, str], words: str) -> None:
    status, text = await ada.post("/policy", **fields)
    assert status == 422
    assert words in text


async def test_a_site_shows_poll_results_and_its_limit_can_be_set(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store, "https://news.example.org/feed", listed=True)
    for status in (304, 304, 429, 200):
        await polled(store, channel.id, PollResult("a" * 40, time.time(), "unchanged", status))
    assert 'href="/hosts/example.org"' in (await ada.get("/hosts"))[1]
    _, text = await ada.get("/hosts/example.org")
    assert "50 %" in text
    assert await ada.post("/hosts/example.org/limit", requests_per_s="0.5") == (303, "/hosts/example.org")
    assert await store.request_budgets.site_rate("example.org") == 0.5
    assert "set by an admin" in (await ada.get("/hosts/example.org"))[1]
    await ada.post("/hosts/example.org/limit/reset")
    assert await store.request_budgets.site_rate("example.org") is None
    assert (await ada.post("/hosts/example.org/limit", requests_per_s="-1"))[0] == 422
    assert "requests resume slowly" not in text
    await store.request_budgets.pause_site("example.org", 3600.0)
    assert "requests resume slowly" in (await ada.get("/hosts/example.org"))[1]
    await ada.post("/hosts/example.org/pause")
    assert await store.request_budgets.paused_s(channel.id) > 3600
    await ada.post("/hosts/example.org/pause", resume="1")
    assert await store.request_budgets.site_paused_s("example.org") == 0.0
    assert await store.request_budgets.paused_s(channel.id) == 0


async def test_a_persons_message_log_has_no_text(
    served: tuple[str, web.Application], store: Store, ada: Visitor
) -> None:
    channel, uid = await make_channel(store), keys.user_id("bob@example.org")
    await store.subscriptions.subscribe("bob@example.org", channel.id)
    for number, ended in enumerate(("received", "done", ""), start=2):
        delta = await publish(store, channel, f"secret{number}", base=number - 1)
        await store.outbox.enqueue([uid], channel.id, delta.version, time.time() - 60, hash_version(delta))
        batch = (await store.outbox.claim([uid], 10, time.time()))[uid]
        if not ended:
            await store.outbox.move_to_dead_letters(uid, batch.message_id, "bounced for 14 days")
        else:
            await store.outbox.complete(acked=[(uid, batch.message_id)])
            await store.outbox.complete(**{ended: [(uid, batch.message_id)]})
    _, text = await ada.get(f"/people/{uid}")
    assert [words in text for words in ("Received", "Sent", "Failed", "bounced for 14 days", "A feed")] == [True] * 5
    assert "secret" not in text
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(served[0], headers=headers) as api:
        async with api.get(f"/api/v1/people/{uid}/deliveries") as answer:
            items = (await answer.json())["items"]
        async with api.get("/api/v1/people/nobody/deliveries") as answer:
            assert answer.status == 404
    assert [(item["state"], item["attempts"]) for item in items] == [("failed", 1), ("sent", 1), ("received", 1)]
    assert items[2]["queued_s"] < items[2]["sent_s"] <= items[2]["received_s"]
    assert [told["title"] for told in items[0]["tells"]] == ["A feed"]


async def test_a_channel_shows_its_hub_without_secrets(store: Store, ada: Visitor) -> None:
    channel, now_s = await make_channel(store, "https://example.org/page", kind="page"), time.time()
    named = HubTopic("https://hub.example/", channel.url)
    state = HubState(named, "a-secret", "a-token", "verified", now_s - 60, now_s + 7_200, 2)
    await store.websub.compare_and_set(channel.id, None, state)
    _, text = await ada.get(f"/channels/{channel.id}")
    for words in ("https://hub.example/", "Subscribed", "lease expires in 2 h", "2 failed requests"):
        assert words in text
    assert "a-secret" not in text
    assert "a-token" not in text
    _, text = await ada.get(f"/channels/add?url={quote(channel.url)}&selector=%23prices&as_page=1")
    assert 'value="#prices"' in text


async def test_an_unreadable_dead_letter_can_be_deleted(store: Store, ada: Visitor) -> None:
    letter = await store.redis.call("XADD", keys.DEAD_LETTERS, "*", "why", b"\xff", "items", "nonsense")
    status, text = await ada.get("/delivery")
    assert status == 200
    assert "Unreadable" in text
    assert "Queue again" not in text
    assert (await ada.post(f"/delivery/{letter.decode()}/requeue"))[0] == 422
    assert await ada.post(f"/delivery/{letter.decode()}/drop") == (303, "/delivery")
    assert await store.dead_letters.count() == 0


async def test_a_node_is_drained_and_restored(store: Store, ada: Visitor) -> None:
    async with worker(store, lambda _: ProbeReply(), name="north") as node:
        assert "north" in (await ada.get("/nodes"))[1]
        assert await ada.post(f"/nodes/{node.id}/drain") == (303, "/nodes")
        assert await store.ring.nodes() == []
        assert await store.ring.record_if_drained("north")
        assert "stay out of the ring" in (await ada.get("/nodes"))[1]
        assert await ada.post("/nodes/north/restore") == (303, "/nodes")
        assert not await store.ring.record_if_drained("north")


async def test_a_node_shows_its_metrics(served: tuple[str, web.Application], store: Store, ada: Visitor) -> None:
    async with (
        serve_health("127.0.0.1", 0, store.ping) as health,
        worker(store, lambda _: ProbeReply(), metrics_url=f"{health.url}/metrics") as node,
        ProcessClient() as asked,
    ):
        sampler = served[1][METRICS]
        await sampler._sample(asked)
        await sampler._sample(asked)
        page = (await ada.get("/nodes"))[1]
        assert "of a core" in page
        assert f"Python {platform.python_version()}" in page
        async with ada.http.get("/api/v1/nodes") as answer:
            told = (await answer.json())["loads"][node.id]
        assert told["memory_bytes"] > 1e6
        assert told["versions"]["redis_client"] == version("redis")
    async with worker(store, lambda _: ProbeReply(), name="silent", place=0.5):
        assert "No metrics yet" in (await ada.get("/nodes"))[1]


async def test_a_key_group_is_split_and_merged_manually(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe("bob@example.org", channel.id)
    status, text = await ada.post("/shards", action="split", label="*")
    assert status == 200
    assert "Split *" in text
    assert 'class="split"' in text
    assert (await ada.post("/shards", action="merge", label="*"))[0] == 200
    status, text = await ada.post("/shards", action="split", label="0101*")
    assert status == 422
    assert "is no leaf" in text


async def test_a_person_is_suspended_limited_and_deleted(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe("bob@example.org", channel.id)
    uid = keys.user_id("bob@example.org")
    assert f'href="/people/{uid}"' in (await ada.get("/people?q=BOB"))[1]
    assert "A feed" in (await ada.get(f"/people/{uid}"))[1]
    assert await ada.post(f"/people/{uid}", action="suspend") == (303, f"/people/{uid}")
    assert "Suspended" in (await ada.get(f"/people/{uid}"))[1]
    await ada.post(f"/people/{uid}", most_subscriptions="5")
    found = await store.people.get(uid)
    assert found is not None
    assert (found.suspended, found.most_subscriptions) == (True, 5)
    assert (await ada.post(f"/people/{uid}", most_subscriptions="many"))[0] == 422
    assert "ends 1 subscription" in (await ada.get(f"/people/{uid}/forget"))[1]
    assert await ada.post(f"/people/{uid}/forget") == (303, "/people?forgotten=1")
    assert await store.people.get(uid) is None
    assert (await ada.get(f"/people/{uid}"))[0] == 404


async def test_waiting_people_are_on_the_delivery_page(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe("bob@example.org", channel.id)
    assert "All notifications have been delivered" in (await ada.get("/delivery"))[1]
    uid = keys.user_id("bob@example.org")
    await store.redis.call("XADD", keys.outbox(uid), "*", "c", channel.id, "v", "2", "t", "1")
    await store.redis.call("ZADD", keys.USERS_WITH_DELIVERIES, 1, uid)
    assert "bob@example.org" in (await ada.get("/delivery"))[1]


async def test_versions_show_their_changes(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store)
    await publish(store, channel, "one")
    edited = Change("replacement", Entry("one", "One", summary="Apples cost more"), before="Apples cost less")
    await change(store, channel, edited, base=2)
    _, text = await ada.get(f"/channels/{channel.id}/versions")
    assert "<del> less</del>" in text
    assert "<ins> more</ins>" in text
    _, text = await ada.get(f"/channels/{channel.id}/versions?before=3")
    assert "<del>" not in text
    assert "Entry one" in text


async def test_content_shows_its_source(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store)
    await publish(store, channel, "one")
    _, text = await ada.get(f"/channels/{channel.id}/content")
    assert "it came from the database" in text
    shown = ContentReply(7, (Entry("a", "From near by"),), "near", 2, "w2")
    async with worker(store, lambda _: shown):
        _, text = await ada.get(f"/channels/{channel.id}/content")
    assert "on w2, 2 hops away" in text
    assert "From near by" in text


async def test_a_poll_streams_its_steps(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store, listed=True)
    result = PollResult("a" * 40, 9.0, "unchanged", 304)
    async with worker(store, lambda _: PollReply(result), steps=(ProgressReply("Asks example.org.", 0.1),)):
        status, text = await ada.post(f"/channels/{channel.id}/trace")
    told = [json.loads(line) for line in text.splitlines()]
    assert status == 200
    assert [line["text"] for line in told[1:]] == ["Asks example.org.", "Unchanged."]
    assert told[-1]["success"] is True


async def test_a_poll_without_a_worker_ends_with_an_error(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store, listed=True)
    _, text = await ada.post(f"/channels/{channel.id}/trace")
    last = json.loads(text.splitlines()[-1])
    assert (last["success"], "No worker is running" in last["text"]) == (False, True)


async def test_viewers_see_no_actions(served: tuple[str, object], store: Store) -> None:
    channel = await make_channel(store, listed=True)
    await store.fleet_policy.set(FleetObjective(), by="ada")
    async with logged_in(served[0], store, "vic", Role.VIEWER) as vic:
        for path in ("/channels", f"/channels/{channel.id}", "/policy", "/hosts/example.org", "/nodes", "/shards"):
            _, text = await vic.get(path)
            assert text.count('method="post"') == 1, path


async def test_the_overview_streams_updates(ada: Visitor) -> None:
    async with ada.http.get("/live") as answer:
        assert answer.content_type == "text/event-stream"
        text = ""
        async for line in answer.content:
            text += line.decode()
            if "event: live" in text and text.endswith("\n\n"):
                break
    assert "event: points" in text
    assert "No worker is running" in text


async def test_an_invitation_is_created_and_works_once(store: Store) -> None:
    async with console(store, who_may_use="invited") as (url, _), logged_in(url, store) as ada:
        status, text = await ada.post("/settings/invitations", uses="1", days="2")
        assert status == 200
        (code,) = re.findall(r"invite (\S+?)<", text)
        assert await store.invitations.accept("bob@example.org", code)
        assert not await store.invitations.accept("eve@example.org", code)
        assert (await ada.post("/settings/invitations", uses="many", days="2"))[0] == 422


@pytest.mark.parametrize("who_may_use", ["open", "listed"])
async def test_no_invitation_is_created_that_would_admit_nobody(store: Store, who_may_use: str) -> None:
    async with console(store, who_may_use=who_may_use) as (url, _), logged_in(url, store) as ada:
        status, text = await ada.post("/settings/invitations", uses="1", days="2")
    assert status == 422
    assert f"who_may_use is &#34;{who_may_use}&#34;" in text
    assert "Set it to &#34;invited&#34;" in text
