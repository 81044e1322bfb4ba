"""Bots that run in the process of the test."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from pydantic import SecretStr

from bots.bot import Bot
from bots.cluster.partitions import ALL_PARTITIONS, AssignedUsers
from bots.main import BotProgram
from service.asyncio_tasks import run_until_stopped
from service.clock import Clock, SystemClock
from service.embedded.private_prosody import PrivateProsody
from service.feeds.entries.version_parts import VersionParts
from service.host_process import serve_programs
from service.model import Channel, Delta, UserId
from service.settings import Settings
from service.store import Store
from service.store.client.keys import user_id
from tests.support.channels import publish
from tests.support.chat import ChatClient
from tests.support.ejabberd import PrivateEjabberd
from tests.support.waiting import until

Server = PrivateProsody | PrivateEjabberd

Person = Callable[[], Awaitable[ChatClient]]
"""Creates an online client with a new account."""


class JumpingClock(SystemClock):
    """The system clocks, advanced by ``ahead_s`` seconds."""

    ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s

    def wall_s(self) -> float:
        return super().wall_s() + self.ahead_s


@contextlib.asynccontextmanager
async def serving(
    settings: Settings, store: Store, clock: Clock | None = None, assigned_users: AssignedUsers | None = None
) -> AsyncIterator[Bot]:
    """Run a bot for all users, or for ``assigned_users``; it is connected when the block begins."""
    clock = clock or SystemClock()
    if assigned_users is None:
        assigned_users = AssignedUsers(store.home_addresses, clock, settings.xmpp_jid)
        assigned_users.assign(ALL_PARTITIONS)
    bot = Bot(settings, store, clock, assigned_users, secrets.token_hex(4))
    running = asyncio.create_task(bot.run())
    try:
        async with asyncio.timeout(20):
            await bot.connection.connected.wait()
            # The response implies that the server has processed the bot's presence and delivers messages to it.
            await bot.connection._ping()
        yield bot
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def run_bot(settings: Settings) -> None:
    """Run the program ``coronet bot`` until SIGTERM or until cancelled."""
    await run_until_stopped(serve_programs(settings, [BotProgram]))


async def tell(store: Store, people: Sequence[ChatClient], channel: Channel, *keys: str, base: int = 1) -> Delta:
    """Publish entries with these keys as one version of a channel, and queue the version in the outboxes of people."""
    delta = await publish(store, channel, *keys, base=base)
    await store.outbox.enqueue(
        [user_id(person.jid) for person in people], channel.id, delta.version, 2_000.0, VersionParts()
    )
    return delta


async def logging_in(server: Server, login: str, redis_url: str) -> Settings:
    """Return the settings of a bot that logs in at this server as "component" or, with a new account, as "client"."""
    if login == "component":
        jid, password, port = server.bot_jid, server.component_secret, server.component_port
    else:
        password, port = "a bot's password", server.c2s_port
        jid = await server.register(f"bot-{secrets.token_hex(4)}", password)
    return Settings(
        redis_url=redis_url,
        xmpp_login="component" if login == "component" else "client",
        xmpp_jid=jid,
        xmpp_password=SecretStr(password),
        xmpp_host="127.0.0.1" if login == "component" else "localhost",
        xmpp_port=port,
        xmpp_ca_file=str(server.ca_file),
        lease_ttl_s=4.0,
        max_commands_per_minute=10_000,
        messages_per_s_per_user=20.0,
    )


async def moved(settings: Settings, prosody: PrivateProsody) -> Settings:
    """Return the settings of the same bot at another Prosody, which may be stopped."""
    await prosody.program()
    if settings.xmpp_login == "component":
        jid, password, port = prosody.component_jid, prosody.component_secret, prosody.component_port
    else:
        password, port = "a bot's password", prosody.c2s_port
        jid = await prosody.register("bot", password)
    there = {"xmpp_jid": jid, "xmpp_password": SecretStr(password), "xmpp_port": port}
    return settings.model_copy(update={**there, "xmpp_ca_file": str(prosody.ca_file)})


def bounced(logs: Sequence[MutableMapping[str, Any]], uid: UserId) -> bool:
    """Return whether a bot logged that a message to a user bounced."""
    return any(entry["event"] == "message bounced" and entry["user"] == uid for entry in logs)


async def knows_receipts(store: Store, person: ChatClient) -> bool:
    """Return whether the store has recorded that this user's client sends receipts."""
    return (await store.users.get(person.jid)).receipts


async def reach(client: ChatClient) -> None:
    """Send commands until the bot replies, because servers drop messages to a disconnected component."""

    async def answered() -> bool:
        with contextlib.suppress(TimeoutError):
            return bool(await client.say("status", 1.0))
        return False

    await until(answered, "the bot answers")
