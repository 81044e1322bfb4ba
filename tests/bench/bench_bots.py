"""Rate at which one entry reaches thousands of subscribers from one account, with one bot and with two that share it.

Both measurements use one machine, the same run, the same clients, and one Prosody without an archive. A rate is
messages per second from the time the entry is in the outboxes until the last client has its message; the result is the
median of the rounds.

``python -m tests.bench.bench_bots [--users N] [--rounds N]`` prints JSON.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

from pydantic import SecretStr

from bots.cluster import process
from bots.cluster.partitions import PARTITION_COUNT
from service.embedded.private_redis import PrivateRedis
from service.feeds.entries.duplicate_articles import hash_version
from service.model import Channel
from service.settings import Settings
from service.store import Store, open_store
from service.store.client.keys import user_id
from tests.bench.bench_fanout import PASSWORD, Crowd, make_accounts, measure_rates
from tests.support.bot_process import bots
from tests.support.channels import make_channel, publish
from tests.support.partition_holders import read_holders
from tests.support.prosody import ForgetfulProsody
from tests.support.waiting import until


async def measure_bots(
    settings: Settings, store: Store, channel: Channel, crowd: Crowd, jids: list[str], **plan: int
) -> list[float]:
    """Return the messages per second of each round with ``count`` bots; ``first`` is the first version's number."""
    uids = [user_id(jid) for jid in jids]

    async def send(number: int) -> float:
        number += plan["first"] - 1
        delta = await publish(store, channel, f"round {number}", base=number)
        await store.outbox.enqueue(uids, channel.id, delta.version, time.time(), hash_version(delta))
        return time.monotonic()

    async def shared() -> bool:
        holders = await read_holders(store, process.lease_group(settings))
        return len(holders) == PARTITION_COUNT and len(set(holders.values())) == plan["count"]

    with tempfile.TemporaryDirectory() as logs:
        async with bots(settings, Path(logs), plan["count"]):
            await until(shared, f"{plan['count']} bots serve", within_s=60.0)
            return await measure_rates(send, crowd, len(jids), plan["rounds"])


async def measure(directory: Path, users: int, rounds: int) -> dict[str, object]:
    """Return both rates and their ratio."""
    names = [f"u{number}" for number in range(users)]
    make_accounts(directory / "prosody", [*names, "bot"])
    prosody = ForgetfulProsody(directory / "prosody")
    async with prosody, PrivateRedis(directory / "redis") as redis:
        settings = Settings(
            redis_url=redis.url,
            xmpp_login="client",
            xmpp_jid=f"bot@{prosody.jid_domain}",
            xmpp_password=SecretStr(PASSWORD),
            xmpp_host="localhost",
            xmpp_port=prosody.c2s_port,
            xmpp_ca_file=str(prosody.ca_file),
            messages_per_s_per_user=1000,
            lease_ttl_s=2.0,
        )
        store = open_store(settings)
        crowd = await Crowd.start(prosody, names, receipts=False)
        try:
            jids = [f"{name}@{prosody.jid_domain}" for name in names]
            channel = await make_channel(store)
            for jid in jids:
                await store.subscriptions.subscribe(jid, channel.id)
            one = await measure_bots(settings, store, channel, crowd, jids, count=1, first=1, rounds=rounds)
            two = await measure_bots(settings, store, channel, crowd, jids, count=2, first=rounds + 1, rounds=rounds)
        finally:
            await crowd.stop()
            await store.close()
    return {
        "users": users,
        "one_bot_messages_per_s": [round(rate) for rate in one],
        "two_bots_messages_per_s": [round(rate) for rate in two],
        "ratio": round(statistics.median(two) / statistics.median(one), 2),
    }


def main() -> None:
    """Run the benchmark and print its results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="coronet-") as directory:
        found = asyncio.run(measure(Path(directory), options.users, options.rounds))
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
