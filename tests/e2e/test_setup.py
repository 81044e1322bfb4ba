"""`coronet setup` in a real terminal: with its snippet in the server's configuration, to the first entry in chat."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import yaml
from aiohttp.test_utils import unused_port

from service.embedded.private_prosody import PrivateProsody
from service.settings import load
from tests.support.bot_in_process import reach
from tests.support.chat import ChatClient
from tests.support.ejabberd import PrivateEjabberd
from tests.support.netns import CORONET
from tests.support.terminal import Terminal, terminal

pytestmark = [pytest.mark.e2e, pytest.mark.servers]

JID = "coronet@feeds.localhost"


class GuidedProsody(PrivateProsody):
    """A Prosody whose component is the snippet that `coronet setup` prints."""

    snippet = ""

    def _configuration(self) -> str:
        before, _, rest = super()._configuration().partition('Component "feeds.localhost"')
        return f'{before}{self.snippet}\nComponent "rooms{rest.partition("""Component "rooms""")[2]}'


class GuidedEjabberd(PrivateEjabberd):
    """An ejabberd whose component listener is the snippet that `coronet setup` prints."""

    snippet = ""

    def _configuration(self) -> str:
        own = yaml.safe_load(super()._configuration())
        (added,) = yaml.safe_load(self.snippet)["listen"]
        own["listen"] = [*(each for each in own["listen"] if each["module"] != "ejabberd_service"), added]
        return str(yaml.safe_dump(own))


async def answer(opened: Terminal, question: str, text: str = "") -> None:
    await opened.shows(question)
    await opened.type(text)


@contextlib.asynccontextmanager
async def running(*argv: str, **environ: str) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(CORONET, *argv, env={**os.environ, **environ})
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.parametrize("kind", [GuidedProsody, GuidedEjabberd])
async def test_settings_written_by_the_wizard_deliver_an_entry(
    kind: type[GuidedProsody | GuidedEjabberd], tmp_path: Path, clean_redis: str
) -> None:
    server = kind(tmp_path / "server")
    config, name = tmp_path / "coronet.toml", kind.__name__.removeprefix("Guided").lower()
    command = f"{CORONET} setup --config {config}; sleep 60"
    async with contextlib.AsyncExitStack() as stack:
        opened = await stack.enter_async_context(terminal(command, {"PATH": os.environ["PATH"]}))
        await answer(opened, "1. Domain", "localhost")
        await answer(opened, "2. URL of Redis", "redis://127.0.0.1:1")
        await answer(opened, "Its password")
        await answer(opened, "Check again, keep", "change")
        await opened.shows("(again): change\n2. URL of Redis")
        await opened.type(clean_redis)
        await answer(opened, f"{clean_redis}\n   Its password")
        await opened.shows("ok  Redis version")
        await opened.shows("ok  Redis persistence")
        await answer(opened, "3. How the bot", "component")
        await answer(opened, "Server [", name)
        await answer(opened, "Address of the bot")
        await answer(opened, "Host of the server")
        await answer(opened, "Port (", str(server.component_port))
        await answer(opened, "Password (")
        screen = await opened.shows("Press Enter when this is done")
        server.snippet = screen.partition("Add this")[2].partition(":\n")[2].partition("Then run")[0].strip() + "\n"
        assert not config.exists()
        await server.start()
        stack.push_async_callback(server.stop)
        await opened.type("")
        await opened.shows("the secret is correct", within_s=40.0)
        await answer(opened, "4. Who may use")
        await answer(opened, "Addresses and domains (localhost)")
        await answer(opened, "5. Public URL")
        await opened.shows("Start with: coronet serve")
        assert load({"CORONET_CONFIG": str(config)}).xmpp_jid == JID
        alice = await server.register("alice", "pw")
        port, journal = unused_port(), str(tmp_path / "journal")
        publisher = ("sample-publisher", "--directory", journal, "--port", str(port), "--every", "2")
        await stack.enter_async_context(running(*publisher))
        environ = {"CORONET_ALLOW_PRIVATE": "1", "CORONET_PRESET": "trial", "CORONET_CONSOLE_PORT": "0"}
        await stack.enter_async_context(running("serve", "--config", str(config), **environ))
        client = ChatClient(alice, "pw", "127.0.0.1", server.c2s_port, JID)
        stack.push_async_callback(client.stop)
        await client.start()
        await reach(client)
        reply = await client.say(f"subscribe http://127.0.0.1:{port}/feed.xml", 40.0)
        assert "Subscribed" in reply
        url = f"http://127.0.0.1:{port}/publish"
        async with aiohttp.ClientSession() as http, http.post(url, params={"title": "The first of ours"}) as published:
            assert published.ok
        await client.wait_for(lambda message: "The first of ours" in message.body, 40.0)


async def test_ctrl_c_during_setup_leaves_no_files(tmp_path: Path) -> None:
    config = tmp_path / "coronet.toml"
    async with terminal(
        f"{CORONET} setup --config {config}; echo status $?; sleep 60", {"PATH": os.environ["PATH"]}
    ) as opened:
        await answer(opened, "1. Domain", "localhost")
        await opened.shows("2. URL of Redis")
        await opened.type("\x03")
        await opened.shows("status 130")
    assert list(tmp_path.iterdir()) == []
