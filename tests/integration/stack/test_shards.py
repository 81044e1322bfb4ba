"""``coronet admin shards``: the tree as people and programs read it, and splits and merges on demand."""

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
import pytest_asyncio

from service.settings import Settings
from service.store import connect, keys
from tests.support.channels import make_channel

PEOPLE = 50
Call = Callable[..., tuple[int, str, str]]


@pytest_asyncio.fixture
async def call(clean_redis: str) -> Call:
    """Call the command on a store with 50 subscriptions; return its exit status, output and error output."""
    store = await connect(Settings(redis_url=clean_redis))
    cid = (await make_channel(store)).id
    for n in range(PEOPLE):
        await store.index.add(cid, keys.user_id(f"user{n}@localhost"), n + 1)
    await store.index.page(cid, "", 1000)
    await store.close()

    def run(*arguments: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "service.cli", "admin", "shards", *arguments]
        environ = {"CORONET_REDIS_URL": clean_redis, "PYTHONPATH": ":".join(sys.path)}
        ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=60)
        return ended.returncode, ended.stdout, ended.stderr

    return run


def test_a_group_is_split_and_merged_on_demand_and_the_tree_says_where_everything_is(call: Call) -> None:
    root = json.loads(call("--json")[1])["shards"]
    assert [(shard["label"], shard["standing"], shard["subscriptions"]) for shard in root] == [("*", "active", PEOPLE)]
    status, out, err = call("--split", "*")
    assert (status, err) == (0, "")
    tree = json.loads(call("--json")[1])
    left, right = tree["shards"][1:]
    assert [shard["label"] for shard in tree["shards"]] == ["*", "0*", "1*"]
    assert tree["shards"][0]["right_keyspace"] == right["keyspace"]
    assert left["subscriptions"] + right["subscriptions"] == tree["subscriptions"] == PEOPLE
    assert f"1* with {right['subscriptions']} subscriptions in keyspace {right['keyspace']}" in out
    text = call()[1]
    assert f"{PEOPLE} subscriptions in 2 of 256 keyspaces" in text
    assert f"its right half is in {right['keyspace']}" in text
    assert f"{PEOPLE} subscriptions in keyspace {left['keyspace']}" in call("--merge", "*")[1]
    assert len(json.loads(call("--json")[1])["shards"]) == 1


@pytest.mark.parametrize(
    ("arguments", "status", "named"),
    [
        (["--split", "012*"], 1, "labels no group"),
        (["--split", "0110*"], 1, "0110* is no leaf. Near it: *"),
        (["--merge", "*"], 1, "* is no split group"),
        (["--merge", "*", "--split", "*"], 2, "one at a time"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_and_nothing_changes(
    call: Call, arguments: list[str], status: int, named: str
) -> None:
    ended, out, err = call(*arguments)
    assert (ended, out, err.count("\n")) == (status, "", 1)
    assert named in err
    assert len(json.loads(call("--json")[1])["shards"]) == 1
