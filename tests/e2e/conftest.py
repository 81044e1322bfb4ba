"""Bots that share an account at the tests' Prosody, and users who chat with them."""

import asyncio
import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from pydantic import SecretStr

from service.embedded.private_prosody import PrivateProsody
from service.settings import Settings
from tests.support.chat import ChatClient

PEOPLE = 8


@pytest_asyncio.fixture
async def settings(clean_redis: str, prosody: PrivateProsody) -> Settings:
    """Settings of bots with a separate account."""
    jid = await prosody.register(f"bot-{secrets.token_hex(4)}", "a bot's password")
    return Settings(
        redis_url=clean_redis,
        xmpp_login="client",
        xmpp_jid=jid,
        xmpp_password=SecretStr("a bot's password"),
        xmpp_host="localhost",
        xmpp_port=prosody.c2s_port,
        xmpp_ca_file=str(prosody.ca_file),
        lease_ttl_s=4.0,
        max_commands_per_minute=10_000,
        messages_per_s_per_user=20.0,
    )


@pytest_asyncio.fixture
async def people(
    request: pytest.FixtureRequest, settings: Settings, prosody: PrivateProsody
) -> AsyncIterator[list[ChatClient]]:
    """Online users; the number is the default of the tests."""
    clients = []
    for _ in range(getattr(request, "param", PEOPLE)):
        jid = await prosody.register(f"person-{secrets.token_hex(4)}", "pw")
        clients.append(ChatClient(jid, "pw", "127.0.0.1", prosody.c2s_port, settings.xmpp_jid))
    await asyncio.gather(*(client.start() for client in clients))
    yield clients
    await asyncio.gather(*(client.stop() for client in clients))
