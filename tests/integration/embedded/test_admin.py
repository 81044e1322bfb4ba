"""``coronet admin``: the console's API on the command line, with text and JSON output."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from service.settings import Settings
from service.store import Store, open_store
from service.store.client import keys
from tests.support.channels import make_channel, restate
from tests.support.console import TOKEN, console

PEOPLE = 50
Call = Callable[..., Awaitable[tuple[int, str, str]]]


@asynccontextmanager
async def _store(url: str) -> AsyncIterator[Store]:
    store = open_store(Settings(redis_url=url))
    try:
        yield store
    finally:
        await store.close()


@pytest_asyncio.fixture
async def call(clean_redis: str) -> AsyncIterator[Call]:
    """Run the command against a console with 50 subscriptions; return its exit status, output and error output."""
    async with _store(clean_redis) as store, console(store) as (url, _):
        cid = (await make_channel(store)).id
        for n in range(PEOPLE):
            await store.channel_index.add(cid, keys.user_id(f"user{n}@localhost"), n + 1)
        await store.channel_index.page(cid, "", 1000)

        async def run(*arguments: str, token: str = TOKEN, at: str = url) -> tuple[int, str, str]:
            environ = {"CORONET_CONSOLE_PUBLIC_URL": at, "CORONET_CONSOLE_ADMIN_TOKEN": token}
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "service.cli", "admin", *arguments),
                env={**environ, "PYTHONPATH": ":".join(sys.path), "PATH": os.environ["PATH"]},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await process.communicate()
            return process.returncode or 0, out.decode(), err.decode()

        yield run


async def test_a_key_group_can_be_split_and_merged_manually(call: Call) -> None:
    root = json.loads((await call("shards", "--json"))[1])["shards"]
    assert [(shard["label"], shard["standing"], shard["subscriptions"]) for shard in root] == [("*", "active", PEOPLE)]
    status, out, err = await call("split-shard", "*")
    assert (status, err) == (0, "")
    tree = json.loads((await call("shards", "--json"))[1])
    left, right = tree["shards"][1:]
    assert [shard["label"] for shard in tree["shards"]] == ["*", "0*", "1*"]
    assert tree["shards"][0]["right_keyspace"] == right["keyspace"]
    assert left["subscriptions"] + right["subscriptions"] == tree["subscriptions"] == PEOPLE
    assert f"1* with {right['subscriptions']} subscriptions in keyspace {right['keyspace']}" in out
    _, text, _ = await call("shards")
    assert f"{PEOPLE} subscriptions in 2 of 256 keyspaces" in text
    assert f"its right half is in {right['keyspace']}" in text
    assert f"{PEOPLE} subscriptions in keyspace {left['keyspace']}" in (await call("merge-shard", "*"))[1]
    assert len(json.loads((await call("shards", "--json"))[1])["shards"]) == 1


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["split-shard", "012*"], 1, "labels no group"),
        (["split-shard", "0110*"], 1, "0110* is no leaf. Similar: *"),
        (["merge-shard", "*"], 1, "* is no split group"),
        (["split-shard"], 2, "label"),
        (["fly"], 2, "No such command 'fly'"),
        (["set-host", "example.org", "often"], 2, "requests_per_s"),
        (["channels", "--wings"], 2, "--wings"),
        (["channel", "a/../b"], 1, "no such channel"),
        (["add-opml", "no/such/file"], 1, "Cannot read"),
    ],
)
async def test_an_invalid_command_prints_one_line(call: Call, arguments: list[str], status: int, text: str) -> None:
    ended, out, err = await call(*arguments)
    assert (ended, out, err.count("\n")) == (status, "", 1)
    assert text in err


async def test_lists_are_tables_with_control_characters_replaced(clean_redis: str, call: Call) -> None:
    async with _store(clean_redis) as store:
        channel = await make_channel(store, "https://example.net/feed", listed=True)
        await restate(store, channel.id, title="A\x1b[31m\nB")
    _, text, _ = await call("channels")
    header, *rows = text.splitlines()
    assert header.split()[:3] == ["id", "url", "title"]
    (row,) = [row for row in rows if channel.id in row]
    assert "A\ufffd[31m\ufffdB" in row
    assert (len(rows), rows[-1]) == (3, "total: 2")


async def test_options_become_fields_of_the_request_body(call: Call) -> None:
    _, out, err = await call("set-policy", "--goal", "fair", "--levels", "4", "--longest-wait-s", "600", "--json")
    policy = json.loads(out)
    assert (err, policy["aims"]["goal"], policy["aims"]["longest_wait_s"], policy["revision"]) == ("", "fair", 600.0, 1)
    assert policy["aims"]["levels"] == "4"
    _, out, _ = await call("set-policy", "--json")
    assert json.loads(out)["set"] is False
    assert "goal: fair" in (await call("undo-policy"))[1]
    assert "Done." in (await call("remove-host", "example.org"))[1]


async def test_a_bad_token_and_an_unreachable_console_are_reported(call: Call) -> None:
    assert "CORONET_CONSOLE_ADMIN_TOKEN" in (await call("nodes", token=""))[2]
    assert "send an API key" in (await call("nodes", token="wrong"))[2]
    status, _, err = await call("nodes", at="http://127.0.0.1:1")
    assert (status, "No console answers at http://127.0.0.1:1" in err, err.count("\n")) == (1, True, 1)


async def test_help_is_available_without_a_console(call: Call) -> None:
    status, out, err = await call("--help", token="", at="")
    assert (status, err) == (0, "")
    assert "requeue-dead-letter   Queue the content of a dead letter" in out
    status, out, err = await call("set-person", "--help", token="", at="")
    assert (status, err, "--most-subscriptions" in out) == (0, "", True)
