"""The list of channels: search, sort orders, paging and bulk changes."""

import re

import pytest

from service.model import PollResult
from service.store import Store
from service.store.coordination.worker_requests import PollReply
from tests.support.channels import count_channels, make_channel, polled
from tests.support.console import TOKEN, Visitor, worker


def _shown(text: str) -> list[str]:
    return re.findall(r'<a href="/channels/([0-9a-f]{40})">', text)


async def test_pages_contain_all_channels(store: Store, ada: Visitor) -> None:
    channels = [await make_channel(store, f"https://example.org/{i}") for i in range(60)]
    _, first = await ada.get("/channels")
    following = re.search(r'href="([^"]+)" rel="next"', first)
    assert following
    _, second = await ada.get(following[1].replace("&amp;", "&"))
    assert sorted(_shown(first) + _shown(second)) == sorted(channel.id for channel in channels)
    assert "51 to 60 of 60 channels" in second


async def test_search_finds_by_url_and_by_title(store: Store, ada: Visitor) -> None:
    wanted = await make_channel(store, "https://example.org/cats")
    await make_channel(store, "https://example.org/dogs")
    assert _shown((await ada.get("/channels?q=CATS"))[1]) == [wanted.id]
    assert len(_shown((await ada.get("/channels?q=a+FEED"))[1])) == 2
    assert "No channels match" in (await ada.get("/channels?q=nowhere"))[1]


async def test_added_and_removed_channels_appear_at_once(store: Store, ada: Visitor) -> None:
    assert "There are no channels yet" in (await ada.get("/channels"))[1]
    channel = await make_channel(store)
    assert _shown((await ada.get("/channels"))[1]) == [channel.id]
    await store.remove_channel(channel.id)
    assert "There are no channels yet" in (await ada.get("/channels"))[1]


async def test_channels_are_sorted_by_subscribers(store: Store, ada: Visitor) -> None:
    few, many = await make_channel(store, "https://example.org/1"), await make_channel(store, "https://example.org/2")
    for channel, people in ((few, 1), (many, 3)):
        for number in range(people):
            await store.subscriptions.subscribe(f"{number}@example.org", channel.id)
    assert _shown((await ada.get("/channels?sort=subscribers"))[1]) == [many.id, few.id]
    assert _shown((await ada.get("/channels?sort=-subscribers"))[1]) == [few.id, many.id]


async def test_channels_are_filtered_by_state(store: Store, ada: Visitor) -> None:
    states = ("polled", "failing", "idle", "paused")
    made = {
        state: await make_channel(store, f"https://example.org/{state}", listed=state != "idle") for state in states
    }
    await polled(store, made["failing"].id, PollResult("a" * 40, 5.0, "bad-status", 404))
    await store.admin_settings.pause([made["paused"].id], 7200.0)
    for state in states:
        assert _shown((await ada.get(f"/channels?state={state}"))[1]) == [made[state].id]


@pytest.mark.parametrize("query", ["sort=best", "state=bad", "sort=--id"])
async def test_an_invalid_filter_is_refused(ada: Visitor, query: str) -> None:
    status, text = await ada.get(f"/channels?{query}")
    assert status == 422
    assert "Invalid search" in text


@pytest.mark.parametrize("page", ["0", "-1", "99999999999", "x", "²"])
async def test_a_page_number_out_of_range_shows_the_nearest_page(store: Store, ada: Visitor, page: str) -> None:
    await make_channel(store)
    assert (await ada.get(f"/channels?page={page}"))[0] == 200


async def _change(ada: Visitor, action: str, *cids: str, **fields: str) -> tuple[int, str]:
    sent = [("csrf", ada.csrf), ("action", action), *(("channel", cid) for cid in cids), *fields.items()]
    async with ada.http.post("/channels/change", data=sent, headers={"Origin": ada.origin}) as answer:
        return answer.status, await answer.text()


async def test_a_pause_by_an_admin_outlasts_other_pauses(store: Store, ada: Visitor) -> None:
    one, other = await make_channel(store, "https://example.org/1"), await make_channel(store, "https://example.org/2")
    _, text = await _change(ada, "pause", one.id, other.id, **{"for": "2 h"})
    assert "2 channels" in text
    assert "Paused for 2 h" in text
    await store.request_budgets.pause(one.id, 1.0)
    assert await store.request_budgets.paused_s(one.id) > 7000
    await _change(ada, "resume", one.id)
    assert await store.request_budgets.paused_s(one.id) == 0
    assert await store.request_budgets.paused_s(other.id) > 7000


async def test_tags_are_added_filtered_by_and_removed(store: Store, ada: Visitor) -> None:
    one, other = await make_channel(store, "https://example.org/1"), await make_channel(store, "https://example.org/2")
    await _change(ada, "tag", one.id, new_tag="News")
    await _change(ada, "tag", one.id, new_tag="daily")
    (found,) = await store.admin_settings.read([one.id])
    assert found is not None
    assert found.tags == ("daily", "news")
    assert _shown((await ada.get("/channels?tag=news"))[1]) == [one.id]
    await _change(ada, "untag", one.id, other.id, new_tag="news")
    (found,) = await store.admin_settings.read([one.id])
    assert found is not None
    assert found.tags == ("daily",)


@pytest.mark.parametrize("tag", ["", "two words", "x" * 41, "\x00"])
async def test_an_invalid_tag_is_refused(store: Store, ada: Visitor, tag: str) -> None:
    channel = await make_channel(store)
    status, text = await _change(ada, "tag", channel.id, new_tag=tag)
    assert status == 422
    assert "A tag is a single word" in text


async def test_polling_many_channels_reports_errors(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store, listed=True)
    assert "No worker is running" in (await _change(ada, "poll", channel.id))[1]
    async with worker(store, lambda _: PollReply(PollResult("a" * 40, 9.0, "unchanged", 304))):
        assert "Done: poll, 1 channel." in (await _change(ada, "poll", channel.id))[1]


async def test_removing_many_channels_requires_confirmation(store: Store, ada: Visitor) -> None:
    channels = [await make_channel(store, f"https://example.org/{i}") for i in range(3)]
    await store.subscriptions.subscribe("bob@example.org", channels[0].id)
    _, text = await _change(ada, "remove", all="1", q="example")
    assert "Remove 3 channels?" in text
    assert await count_channels(store) == 3
    _, text = await _change(ada, "remove", channels[0].id, channels[1].id, sure="1")
    assert "Done: remove, 2 channels." in text
    assert _shown(text) == [channels[2].id]
    assert await store.subscriptions.of_user("bob@example.org") == []


async def test_api_cursors_survive_removals(store: Store, ada: Visitor) -> None:
    channels = [await make_channel(store, f"https://example.org/{i:02}") for i in range(7)]
    seen, cursor = [], ""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    while True:
        where = f"/api/v1/channels?sort=title&limit=3&cursor={cursor}"
        async with ada.http.get(where, headers=headers) as answer:
            page = await answer.json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next"]
        if not cursor:
            break
        await store.remove_channel(cursor.partition(".")[0])
    assert seen == [channel.id for channel in channels]
