"""Rate at which one entry reaches thousands of online subscribers, compared with a bare slixmpp loop.

Both send to the same Prosody without an archive, in the same run, to the same clients in a separate process. A rate is
messages per second from the first write (of the bot: from the time the entry is in the outboxes) until the last client
has its message; the result is the median of the rounds.

``python -m tests.bench.bench_fanout [--users N] [--rounds N] [--receipts]`` prints JSON.
"""

import argparse
import asyncio
import hashlib
import hmac
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from slixmpp import ComponentXMPP

from service.embedded.private_prosody import PrivateProsody
from service.embedded.private_redis import PrivateRedis
from service.feeds.entries.duplicate_articles import hash_version
from service.observability.log_configuration import configure
from service.settings import Settings
from service.store import Store, open_store
from service.store.client.keys import user_id
from tests.bench import receivers
from tests.support.bot_in_process import serving
from tests.support.channels import make_channel, publish
from tests.support.prosody import ForgetfulProsody

PASSWORD = "the same for all"
BODY = "*A feed*\nEntry round 1\nhttps://example.org/round 1"
Send = Callable[[int], Awaitable[float]]
"""Send round number n to everybody; return when (monotonic s) it began."""


def make_accounts(directory: Path, users: list[str]) -> None:
    """Write the accounts' files directly, because prosodyctl takes 0.2 s per account."""
    salt, iterations = "bench", 4
    salted = hashlib.pbkdf2_hmac("sha1", PASSWORD.encode(), salt.encode(), iterations)
    keys = {
        "stored_key": hashlib.sha1(hmac.digest(salted, b"Client Key", "sha1"), usedforsecurity=False).hexdigest(),
        "server_key": hmac.digest(salted, b"Server Key", "sha1").hex(),
        "salt": salt,
    }
    fields = "".join(f'["{name}"]="{value}";' for name, value in keys.items())
    folder = directory / "data" / "localhost" / "accounts"
    folder.mkdir(parents=True)
    for user in users:
        (folder / f"{user}.dat").write_text(f'return {{{fields}["iteration_count"]={iterations};}};', encoding="ascii")


class Crowd:
    """The receiving process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        self._process = process
        self._said = process.stdout

    @classmethod
    async def start(cls, prosody: PrivateProsody, users: list[str], *, receipts: bool) -> "Crowd":
        """Wait until all clients are online."""
        argv = [receivers.__file__, "127.0.0.1", str(prosody.c2s_port), PASSWORD, str(int(receipts)), *users]
        process = await asyncio.create_subprocess_exec(sys.executable, *argv, stdout=asyncio.subprocess.PIPE)
        crowd = cls(process)
        assert await crowd._said.readline() == b"ready\n"
        return crowd

    async def served_s(self) -> float:
        """Return the monotonic time (s) at which all clients had one more message."""
        return float((await asyncio.wait_for(self._said.readline(), 120)).split()[1])

    async def stop(self) -> None:
        """Stop all clients."""
        self._process.terminate()
        await self._process.wait()


async def measure_rates(send: Send, crowd: Crowd, users: int, rounds: int) -> list[float]:
    """Return messages per second of each round."""
    found = []
    for number in range(1, rounds + 1):
        began_s = await send(number)
        found.append(users / (await crowd.served_s() - began_s))
    return found


async def measure_bare_loop(
    prosody: PrivateProsody, jids: list[str], crowd: Crowd, rounds: int, *, receipts: bool
) -> list[float]:
    """Measure slixmpp with one message object per user."""
    stream: Any = ComponentXMPP(prosody.component_jid, prosody.component_secret)  # type: ignore[no-untyped-call] # slixmpp left it untyped
    stream.register_plugin("xep_0184", {"auto_request": receipts})
    stream.connect("127.0.0.1", prosody.component_port)
    await stream.wait_until("session_start", 10)

    async def send(_number: int) -> float:
        began_s = time.monotonic()
        for jid in jids:
            stream.send_message(mto=jid, mbody=BODY, mtype="chat", mfrom=prosody.component_jid)
        return began_s

    found = await measure_rates(send, crowd, len(jids), rounds)
    await stream.disconnect()
    return found


async def measure_coronet(settings: Settings, store: Store, jids: list[str], crowd: Crowd, rounds: int) -> list[float]:
    """Measure the bot with one entry in every user's outbox."""
    channel = await make_channel(store)
    for jid in jids:
        await store.subscriptions.subscribe(jid, channel.id)
    uids = [user_id(jid) for jid in jids]

    async def send(number: int) -> float:
        delta = await publish(store, channel, f"round {number}", base=number)
        await store.outbox.enqueue(uids, channel.id, delta.version, time.time(), hash_version(delta))
        return time.monotonic()

    async with serving(settings, store):
        return await measure_rates(send, crowd, len(jids), rounds)


async def measure(directory: Path, users: int, rounds: int, *, receipts: bool) -> dict[str, object]:
    """Return both rates and their ratio."""
    names = [f"u{number}" for number in range(users)]
    make_accounts(directory / "prosody", names)
    prosody = ForgetfulProsody(directory / "prosody")
    async with prosody, PrivateRedis(directory / "redis") as redis:
        settings = Settings(
            redis_url=redis.url,
            xmpp_jid=prosody.component_jid,
            xmpp_password=SecretStr(prosody.component_secret),
            xmpp_port=prosody.component_port,
            messages_per_s_per_user=1000,
        )
        store = open_store(settings)
        crowd = await Crowd.start(prosody, names, receipts=receipts)
        try:
            jids = [f"{name}@{prosody.jid_domain}" for name in names]
            bare = await measure_bare_loop(prosody, jids, crowd, rounds, receipts=receipts)
            if receipts:
                await store.users.mark_receipts([user_id(jid) for jid in jids])
            ours = await measure_coronet(settings, store, jids, crowd, rounds)
        finally:
            await crowd.stop()
            await store.close()
    return {
        "users": users,
        "receipts": receipts,
        "bare_messages_per_s": [round(rate) for rate in bare],
        "coronet_messages_per_s": [round(rate) for rate in ours],
        "ratio": round(statistics.median(ours) / statistics.median(bare), 2),
    }


def main() -> None:
    """Run the benchmark and print its results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--receipts", action="store_true", help="clients answer with receipts (XEP-0184)")
    options = parser.parse_args()
    configure(Settings())  # as the bot does: what it does for each person is no line of its log
    with tempfile.TemporaryDirectory(prefix="coronet-") as directory:
        found = asyncio.run(measure(Path(directory), options.users, options.rounds, receipts=options.receipts))
    sys.stdout.write(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
