"""The whole product as ``coronet up`` in separate processes, with faults that tests inject."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from service.embedded.sample_publisher import Journal, PublishedEntry
from service.settings import Settings
from service.store import Store, open_store
from tests.support.chat import ChatClient, online
from tests.support.waiting import until

_READY_WITHIN_S = 60.0
_HEALED_WITHIN_S = 30.0


class Product:
    """A process of ``coronet up`` with its state directory."""

    def __init__(
        self, directory: Path, *options: str, program: Sequence[str] = (sys.executable, "-m", "service.cli")
    ) -> None:
        """Set the state directory and options of ``coronet up``; ``program`` is the command line of ``coronet``."""
        self._program = program
        self.directory = directory
        self.ready_file = directory / "ready.json"
        self._options = options
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> float:
        """Start the product and wait until it is ready; return the duration in seconds."""
        started_s = time.monotonic()
        self.directory.mkdir(exist_ok=True)
        with (self.directory / "up.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(*self._program, "up", "--state", str(self.directory)),
                *("--ready-file", str(self.ready_file), "--allow-private", *self._options),
                stdout=log,
                stderr=log,
                stdin=asyncio.subprocess.DEVNULL,
            )
        await until(self._is_ready, f"ready; see {self.directory}/up.log", within_s=_READY_WITHIN_S)
        return time.monotonic() - started_s

    async def stop(self) -> float:
        """Stop the product with SIGTERM; return the duration in seconds."""
        started_s = time.monotonic()
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(self._process.wait(), 20)
        return time.monotonic() - started_s

    async def _is_ready(self) -> bool:
        if self._process is not None and self._process.returncode is not None:
            raise AssertionError(f"it ended at once:\n{(self.directory / 'up.log').read_text()[-3000:]}")
        return self.ready_file.exists()

    @property
    def ready(self) -> dict[str, Any]:
        """The present content of the ready file."""
        found: dict[str, Any] = msgspec.json.decode(self.ready_file.read_bytes())
        return found

    def pids(self, *kinds: str) -> list[int]:
        """Return the present process ids of these kinds of programs."""
        processes = self.ready["processes"]
        return [
            pid
            for kind in kinds
            for pid in ([processes[kind]] if isinstance(processes[kind], int) else processes[kind])
        ]

    async def crash(self) -> None:
        """Kill the supervisor with SIGKILL; the kernel kills its children."""
        children = self.pids(*self.ready["processes"])
        if self._process is not None:
            self._process.kill()
            await self._process.wait()

        async def all_gone() -> bool:
            return not any(Path(f"/proc/{pid}").exists() for pid in children)

        await until(all_gone, "no child outlives its supervisor", within_s=10.0)
        self.ready_file.unlink(missing_ok=True)

    async def kill(self, *kinds: str, only: Collection[int] = ()) -> None:
        """Kill processes of these kinds with SIGKILL at once, and wait until the supervisor has replaced them.

        ``only`` are the process ids to kill; if it is empty, all processes of these kinds are killed.
        """
        victims = list(only) or self.pids(*kinds)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)

        async def replaced() -> bool:
            with contextlib.suppress(FileNotFoundError):
                return not set(self.pids(*kinds)) & set(victims)
            return False

        await until(replaced, f"{kinds} are running again", within_s=_HEALED_WITHIN_S)

    @contextlib.asynccontextmanager
    async def store(self) -> AsyncIterator[Store]:
        """Yield a store that is connected to the product's Redis."""
        opened = open_store(Settings(redis_url=self.ready["redis_url"]))
        try:
            yield opened
        finally:
            await opened.close()

    def chat(self, account: int = 0) -> contextlib.AbstractAsyncContextManager[ChatClient]:
        """Return the context of an online client of the trial account number ``account``."""
        xmpp = self.ready["xmpp"]
        who = xmpp["accounts"][account]
        return online(who["jid"], who["password"], xmpp["host"], xmpp["port"], xmpp["bot_jid"])

    def published(self) -> list[PublishedEntry]:
        """Return the entries that the sample publisher has published."""
        return Journal(self.directory / "publisher" / "published.jsonl", PublishedEntry).lines()


@contextlib.asynccontextmanager
async def running(directory: Path, *options: str) -> AsyncIterator[Product]:
    """Start ``coronet up`` and yield it when it is ready; stop it afterwards."""
    product = Product(directory, *options)
    try:
        await product.start()
        yield product
    finally:
        await product.stop()
