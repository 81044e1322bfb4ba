"""Bounds on the poll rate of one channel."""

import aiohttp
import pytest
from aiohttp import web

from service.console.admin_cli import ApiRequest, parse
from service.corona.fleet_policy import NO_BOUNDS, ChannelBounds
from service.store import Store
from tests.support.channels import make_channel
from tests.support.console import TOKEN, Visitor


async def test_bounds_are_set_shown_and_undone(store: Store, ada: Visitor) -> None:
    path = f"/channels/{(channel := await make_channel(store, listed=True)).id}"
    assert "Undo" not in (await ada.get(path))[1]
    assert await ada.post(f"{path}/bounds", longest_wait_s="2 h", shortest_interval_s="15 min") == (
        303,
        f"{path}#bounds",
    )
    found = await store.poll_bounds.get(channel.id)
    assert found is not None
    assert (found.bounds, found.before, found.by) == (ChannelBounds(7_200.0, 900.0), NO_BOUNDS, "ada")
    _, text = await ada.get(path)
    assert "Mean delay at most 2 h, at least 15 min between polls" in text
    assert "Undo (restore: policy only)" in text
    assert await ada.post(f"{path}/bounds/undo", longest_wait_s="1 s") == (303, f"{path}#bounds")
    found = await store.poll_bounds.get(channel.id)
    assert found is not None
    assert (found.bounds, found.before) == (NO_BOUNDS, ChannelBounds(7_200.0, 900.0))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"longest_wait_s": "soon"}, "is not a duration"),
        ({"shortest_interval_s": "0"}, "Invalid bounds"),
        (
            {"longest_wait_s": "1 min", "shortest_interval_s": "1 h"},
            "Choose a shorter minimum interval or a longer maximum delay",
        ),
    ],
)
async def test_invalid_bounds_are_refused(store: Store, ada: Visitor, fields: dict[str, str], words: str) -> None:
    channel = await make_channel(store)
    status, text = await ada.post(f"/channels/{channel.id}/bounds", **fields)
    assert status == 422
    assert words in text
    assert await store.poll_bounds.get(channel.id) is None
    status, text = await ada.post(f"/channels/{channel.id}/bounds/undo")
    assert (status, "there is nothing to undo" in text) == (422, True)


async def test_the_api_sets_and_undoes_bounds_with_audit(store: Store, served: tuple[str, web.Application]) -> None:
    channel = await make_channel(store, listed=True)
    path = f"/api/v1/channels/{channel.id}/bounds"
    async with aiohttp.ClientSession(served[0], headers={"Authorization": f"Bearer {TOKEN}"}) as api:
        async with api.put(path, json={"longest_wait_s": 60.0}) as answer:
            assert (answer.status, (await answer.json())["bounds"]["bounds"]) == (200, {"longest_wait_s": 60.0})
        async with api.put(path, json={"longest_wait_s": 1.0, "shortest_interval_s": 3.0}) as answer:
            assert answer.status == 422
        async with api.post(f"{path}/undo") as answer:
            assert (answer.status, (await answer.json())["bounds"]["bounds"]) == (200, {})
        async with api.get("/api/v1/log") as answer:
            details = [noted["deed"]["detail"] for noted in (await answer.json())["items"]]
    assert "mean delay at most 1 min" in details


def test_the_command_line_sets_bounds() -> None:
    call = parse(["set-bounds", "c" * 40, "--shortest-interval-s", "600"])
    assert isinstance(call, ApiRequest)
    assert (call.path, call.body) == (f"/channels/{'c' * 40}/bounds", b'{"shortest_interval_s":600.0}')
