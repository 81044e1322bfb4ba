"""Response times of one bot for a hundred users who send commands at the same time.

``python -m tests.bench.bench_commands [--users N] [--rounds N]`` prints JSON, and fails if the 95th
percentile is above 300 ms.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from service.embedded.private_prosody import PrivateProsody
from service.embedded.private_redis import PrivateRedis
from service.settings import Settings
from service.store import open_store
from tests.bench.bench_fanout import PASSWORD, make_accounts
from tests.support.bot_in_process import serving
from tests.support.channels import make_channel

LONGEST_P95_S: Final = 0.3


async def measure(directory: Path, users: int, rounds: int) -> list[float]:
    """Return the response times in seconds."""
    names = [f"u{number}" for number in range(users)]
    make_accounts(directory / "prosody", names)
    prosody = PrivateProsody(directory / "prosody")
    async with prosody, PrivateRedis(directory / "redis") as redis:
        settings = Settings(
            redis_url=redis.url,
            xmpp_jid=prosody.component_jid,
            xmpp_password=SecretStr(prosody.component_secret),
            xmpp_port=prosody.component_port,
            max_commands_per_minute=100_000,
        )
        store = open_store(settings)
        channel = await make_channel(store)
        for name in names:
            await store.subscriptions.subscribe(f"{name}@{prosody.jid_domain}", channel.id)
        argv = ["127.0.0.1", str(prosody.c2s_port), PASSWORD, prosody.component_jid, str(rounds), *names]
        async with serving(settings, store):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "tests.bench.command_senders", *argv, stdout=asyncio.subprocess.PIPE
            )
            told, _ = await asyncio.wait_for(process.communicate(), 120)
        await store.close()
    return [float(each) for each in json.loads(told)]


def main() -> None:
    """Run the benchmark and print its results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=28)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="coronet-") as directory:
        took = asyncio.run(measure(Path(directory), options.users, options.rounds))
    p95_s = statistics.quantiles(took, n=20)[-1]
    found = {
        "users": options.users,
        "answers": len(took),
        "median_ms": round(statistics.median(took) * 1e3),
        "p95_ms": round(p95_s * 1e3),
        "longest_ms": round(max(took) * 1e3),
    }
    sys.stdout.write(json.dumps(found, indent=2) + "\n")
    sys.exit(p95_s > LONGEST_P95_S)


if __name__ == "__main__":
    main()
