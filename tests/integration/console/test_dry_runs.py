"""Dry runs of commands and previews of notifications."""

import aiohttp
from aiohttp import web

from service.model import Channel, Entry, FeedLink
from service.store import Store
from service.store.client import keys
from service.store.coordination.bot_requests import (
    CommandPreview,
    DryRunReply,
    DryRunRequest,
    MessagePreviewReply,
    MessagePreviewRequest,
)
from service.store.coordination.worker_requests import ProbeReply
from tests.support.channels import count_channels, make_channel
from tests.support.console import TOKEN, Visitor, rehearsing, worker

BOB = "bob@example.org"


def _echo(asked: DryRunRequest | MessagePreviewRequest) -> DryRunReply | MessagePreviewReply:
    if isinstance(asked, MessagePreviewRequest):
        return MessagePreviewReply("*A feed*\n<b>First</b>")
    lines = (
        CommandPreview(command, (f"{asked.jid} said <b>{command}</b>",), ("Do it.",)) for command in asked.commands
    )
    return DryRunReply(tuple(lines))


async def test_a_dry_run_shows_replies_and_effects(store: Store, ada: Visitor) -> None:
    await store.users.mark_welcomed(BOB)
    path = f"/people/{keys.user_id(BOB)}"
    assert "Dry run" in (await ada.get(path))[1]
    async with rehearsing(store, _echo):
        status, text = await ada.post(f"{path}/rehearsal", command="yes", before="forget me")
    assert status == 200
    assert f"{BOB} said &lt;b&gt;forget me&lt;/b&gt;" in text
    assert f"{BOB} said &lt;b&gt;yes&lt;/b&gt;" in text
    assert "Do it." in text
    assert 'name="before" value="yes"' in text


async def test_a_dry_run_neither_sends_nor_shows_logins(store: Store, ada: Visitor) -> None:
    await store.users.mark_welcomed(BOB)
    asked: list[str] = []

    def answer(request: DryRunRequest | MessagePreviewRequest) -> DryRunReply | MessagePreviewReply:
        assert isinstance(request, DryRunRequest)
        asked.extend(request.commands)
        return _echo(request)

    command = "subscribe example.org/feed login bob s3cret"
    async with rehearsing(store, answer):
        path = f"/people/{keys.user_id(BOB)}/rehearsal"
        status, text = await ada.post(path, command=command, before=command)
    assert (status, asked) == (200, ["subscribe example.org/feed login …"] * 2)
    assert "s3cret" not in text


async def test_a_dry_run_requires_a_bot(store: Store, ada: Visitor) -> None:
    await store.users.mark_welcomed(BOB)
    status, text = await ada.post(f"/people/{keys.user_id(BOB)}/rehearsal", command="list")
    assert status == 503
    assert "No bot is connected" in text
    assert (await ada.post(f"/people/{keys.user_id(BOB)}/rehearsal", command=" "))[0] == 422
    assert (await ada.post("/people/nobody/rehearsal", command="list"))[0] == 404


async def test_a_channel_preview_has_an_example_notification(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store)
    async with worker(store, lambda _: ProbeReply(channel, (Entry("k", "First"),))):
        async with rehearsing(store, _echo):
            _, text = await ada.post("/channels/add", url=channel.url)
        assert "*A feed*\n&lt;b&gt;First&lt;/b&gt;" in text
        status, text = await ada.post("/channels/add", url=channel.url)
    assert status == 200
    assert "No bot is connected" in text
    assert "Add channel" in text


async def test_the_api_dry_runs_commands(store: Store, served: tuple[str, web.Application]) -> None:
    await store.users.mark_welcomed(BOB)
    channel = await make_channel(store)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(f"{served[0]}/api/v1/", headers=headers) as api, rehearsing(store, _echo):
        async with api.post(f"people/{keys.user_id(BOB)}/rehearsal", json={"commands": ["list"]}) as answer:
            (line,) = (await answer.json())["lines"]
            assert (answer.status, line["command"], line["would"]) == (200, "list", ["Do it."])
        async with api.post(f"people/{keys.user_id(BOB)}/rehearsal", json={"commands": []}) as answer:
            assert answer.status == 422
        async with api.get(f"channels/{channel.id}/message") as answer:
            assert await answer.json() == {"text": "*A feed*\n<b>First</b>"}


async def test_the_api_previews_channels(store: Store, served: tuple[str, web.Application]) -> None:
    headers, url = {"Authorization": f"Bearer {TOKEN}"}, "https://example.org/feed"
    seen = ProbeReply(Channel("a" * 40, url, "A feed"), (Entry("k", "First"),))
    answers: list[ProbeReply] = [seen, ProbeReply(page=True), ProbeReply(choices=(FeedLink(url),))]
    async with (
        aiohttp.ClientSession(f"{served[0]}/api/v1/", headers=headers) as api,
        worker(store, lambda _: answers.pop(0)),
        rehearsing(store, _echo),
    ):
        async with api.post("channels/preview", json={"url": url}) as answer:
            found = await answer.json()
        assert (found["title"], found["message"], found["known"]) == ("A feed", "*A feed*\n<b>First</b>", None)
        for status in (422, 300):
            async with api.post("channels/preview", json={"url": url}) as answer:
                assert answer.status == status
    assert await count_channels(store) == 0
