"""A bot within the test's own process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from bots.main import Bot
from service.clock import SystemClock
from service.model import Channel, Delta
from service.settings import Settings
from service.store import Store
from service.store.keys import user_id
from tests.support.channels import publish
from tests.support.chat import ChatClient

Person = Callable[[], Awaitable[ChatClient]]
"""Makes a person with an account of their own, online."""


@contextlib.asynccontextmanager
async def serving(settings: Settings, store: Store) -> AsyncIterator[Bot]:
    """Run a bot; it has a session when the block begins."""
    bot = Bot(settings, store, SystemClock())
    running = asyncio.create_task(bot.run())
    try:
        async with asyncio.timeout(20):
            await bot.connection.up.wait()
        yield bot
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def tell(store: Store, people: Sequence[ChatClient], channel: Channel, *keys: str, base: int = 1) -> Delta:
    """Publish entries with these keys as one version of a channel, and queue it for people."""
    delta = await publish(store, channel, *keys, base=base)
    await store.outbox.enqueue([user_id(person.jid) for person in people], channel.id, delta.version, 2_000.0)
    return delta
