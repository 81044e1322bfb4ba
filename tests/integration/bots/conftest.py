"""A bot on a real Redis and a real Prosody, in both ways to log in, and people who talk to it."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from pydantic import SecretStr

from bots.bot import Bot
from service.embedded.private_prosody import PrivateProsody
from service.settings import Settings
from service.store import Store
from tests.support.bot_in_process import Person, serving
from tests.support.chat import ChatClient

BOT_PASSWORD = "a bot's password"


@pytest.fixture(params=["component", "client"])
def login(request: pytest.FixtureRequest) -> str:
    """The way the bot logs in."""
    return str(request.param)


@pytest_asyncio.fixture
async def settings(clean_redis: str, prosody: PrivateProsody, login: str) -> Settings:
    """Settings of a bot with an address of its own."""
    if login == "component":
        jid, password, port = prosody.component_jid, prosody.component_secret, prosody.component_port
    else:
        password, port = BOT_PASSWORD, prosody.c2s_port
        jid = await prosody.register(f"bot-{secrets.token_hex(4)}", password)
    return Settings(
        redis_url=clean_redis,
        xmpp_login="component" if login == "component" else "client",
        xmpp_jid=jid,
        xmpp_password=SecretStr(password),
        xmpp_host="127.0.0.1" if login == "component" else "localhost",
        xmpp_port=port,
        xmpp_ca_file=str(prosody.ca_file),
        upload_url=prosody.http_url,
        max_commands_per_minute=1_000,
        messages_per_s_per_user=5.0,
    )


@pytest_asyncio.fixture
async def bot(settings: Settings, store: Store) -> AsyncIterator[Bot]:
    """A bot that serves."""
    async with serving(settings, store) as running:
        yield running


@pytest_asyncio.fixture
async def person(settings: Settings, prosody: PrivateProsody) -> AsyncIterator[Person]:
    """Make people with accounts of their own, online, who know the bot's address."""
    clients: list[ChatClient] = []

    async def make() -> ChatClient:
        jid = await prosody.register(f"person-{secrets.token_hex(4)}", "pw")
        client = ChatClient(jid, "pw", "127.0.0.1", prosody.c2s_port, settings.xmpp_jid)
        clients.append(client)
        return await client.start()

    yield make
    await asyncio.gather(*(client.stop() for client in clients))


@pytest.fixture
def own_prosody(tmp_path: Path) -> PrivateProsody:
    """A Prosody that a test may kill; not started yet."""
    return PrivateProsody(tmp_path / "prosody")
