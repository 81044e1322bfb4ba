"""A worker process that fans out only: ``python -m tests.support.fan_out_worker REDIS_URL NAME CONSTANTS``.

CONSTANTS replaces values of ``CLAIM_S`` and of constants of ``workers.ownership.fanout``, as JSON. The process joins
the ring, prints a line, and helps the other workers with their fan-outs. For each line with a channel id on standard
input, it adopts the channel, runs its fan-outs, and prints the processor time in seconds that it has used so far. An
empty line prints the time only.
"""

import asyncio
import json
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from types import MappingProxyType

from service.asyncio_tasks import BackgroundTasks
from service.model import ChannelId
from service.observability.log_configuration import configure
from service.overlay.ring import balanced_id
from service.settings import Settings
from service.store import open_store
from service.store.coordination.worker_inboxes import InboxMessage
from service.store.delivery import fanout_units
from workers.ownership import fanout
from workers.ownership.fanout import FanOut, choose_helpers

_LEASE_S = 600.0


async def main(redis_url: str, name: str) -> None:
    """Run the worker until standard input ends."""
    store, tasks = open_store(Settings(redis_url=redis_url)), BackgroundTasks()
    info = await store.ring.join(name, "", _LEASE_S, balanced_id, name)

    async def invite(channel_id: ChannelId, count: int) -> None:
        helpers = choose_helpers(await store.ring.view(), channel_id, info, count)
        message = InboxMessage("fanout", info.id, channel_id.encode())
        await store.node_inboxes.send([(node, message) for node in helpers])

    fan_out = FanOut(store, 3, invite)

    async def read_inbox() -> None:
        cursor = "0"
        while True:
            messages, cursor = await store.node_inboxes.read(info.id, cursor)
            for message in messages:
                tasks.start(fan_out.help(message.payload.decode()))

    tasks.start(read_inbox())
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while line := await asyncio.to_thread(sys.stdin.readline):
        if channel_id := line.strip():
            (state,) = await store.channels.adopt([channel_id], info.id)
            assert state is not None
            assert await fan_out.run(channel_id, state.epoch)
        sys.stdout.write(f"{time.process_time()}\n")
        sys.stdout.flush()


class FanOutWorker:
    """A running worker process."""

    def __init__(self, process: Process) -> None:
        self.process = process

    @classmethod
    async def start(
        cls, redis_url: str, name: str, constants: Mapping[str, float] = MappingProxyType({})
    ) -> "FanOutWorker":
        """Start a worker whose fan-out has these values of its constants; return when the worker is in the ring."""
        argv = ("-m", "tests.support.fan_out_worker", redis_url, name, json.dumps(dict(constants)))
        process = await asyncio.create_subprocess_exec(sys.executable, *argv, stdin=PIPE, stdout=PIPE)
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        return cls(process)

    async def run(self, channel_id: ChannelId = "") -> float:
        """Fan out the versions of a channel, if any; return the processor time (s) that the process has used so far."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{channel_id}\n".encode())
        return float(await self.process.stdout.readline())

    def freeze(self) -> None:
        """Stop the process until :meth:`thaw`."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue the stopped process."""
        self.process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        """Kill the process and wait until it has ended."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


if __name__ == "__main__":
    for constant, value in json.loads(sys.argv[3]).items():
        setattr(fanout_units if constant == "CLAIM_S" else fanout, constant, value)
    configure(Settings(log_level="warning"))
    asyncio.run(main(*sys.argv[1:3]))
