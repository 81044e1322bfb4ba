"""The compose stack as far as it goes without a container engine: its secrets, its Redis, its Prosody."""

import ast
import asyncio
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from aiohttp.test_utils import unused_port
from pydantic import SecretStr
from redis.asyncio import Redis

from bots import pubsub
from bots.uploads import Uploads
from bots.xmpp import Connection
from service.errors import StoreUnavailable
from service.net.uploads import Uploads as Files
from service.settings import Settings
from service.stack import ports
from service.stack.child import Child, Program
from service.store.identity import IdentityFile
from service.store.link import Link

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "compose"


def run_bootstrap(folder: Path) -> str:
    script = shutil.copy(COMPOSE / "bootstrap.py", folder)
    return subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compose")
    run_bootstrap(folder)
    return folder / "secrets"


async def running(name: str, argv: list[str], folder: Path, answers: Callable[[], Awaitable[bool]]) -> Child:
    child = await Child.start(Program(name, tuple(argv), folder / f"{name}.log", answers))
    try:
        await child.ready(timeout_s=30)
    except BaseException:
        await child.stop()
        raise
    return child


@pytest.fixture
async def redis_socket(secrets: Path, tmp_path: Path) -> AsyncIterator[Path]:
    socket = tmp_path / "redis.sock"
    argv = ["redis-server", str(COMPOSE / "redis/redis.conf"), "--port", "0", "--unixsocket", str(socket)]
    argv += ["--dir", str(tmp_path), "--aclfile", str(secrets / "redis_users.acl")]

    async def answers() -> bool:
        return socket.exists()

    child = await running("redis", argv, tmp_path, answers)
    try:
        yield socket
    finally:
        await child.stop()


@pytest.fixture
async def link(redis_socket: Path, secrets: Path) -> AsyncIterator[Link]:
    password = SecretStr((secrets / "redis_password").read_text().strip())
    link = Link(Settings(redis_url=f"unix://{redis_socket}", redis_username="coronet", redis_password=password))
    yield link
    await link.close()


def commands_of_the_store() -> set[str]:
    """Every Redis command that the store sends, itself or from its scripts."""
    store = ROOT / "service/store"
    found = {"HELLO", "AUTH", "PING"}
    for path in store.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            words = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.Tuple) else []
            first = words[0].value if words and isinstance(words[0], ast.Constant) else None
            if isinstance(first, str) and re.fullmatch("[A-Z]{3,}", first):
                found.add(first)
    for path in store.glob("scripts/*.lua"):
        found.update(re.findall(r"""redis\.p?call\(\s*['"](\w+)""", path.read_text(encoding="utf-8")))
    return found


def test_secrets_are_made_once_and_only_their_owner_can_read_them(tmp_path: Path) -> None:
    run_bootstrap(tmp_path)
    made = {path.name: path.read_bytes() for path in (tmp_path / "secrets").iterdir()}
    assert "everything is there" in run_bootstrap(tmp_path)
    assert {path.name: path.read_bytes() for path in (tmp_path / "secrets").iterdir()} == made
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "secrets").iterdir()} == {0o600}


def test_the_fleets_id_is_made_once_where_every_program_can_write_it(tmp_path: Path) -> None:
    run_bootstrap(tmp_path)
    path = tmp_path / "state/store-identity.json"
    made = IdentityFile(path).read()
    assert made is not None
    assert (len(made.fleet), made.in_use) == (32, False)
    run_bootstrap(tmp_path)
    assert IdentityFile(path).read() == made
    stack = (COMPOSE / "compose.yaml").read_text(encoding="utf-8")
    assert f"CORONET_STORE_IDENTITY_FILE: /state/{path.name}" in stack
    assert '&identity ["./state:/state"]' in stack
    assert stack.count("<<: *store") == stack.count("volumes: *identity") == 3


def test_bootstrap_makes_every_secret_that_compose_mounts(secrets: Path) -> None:
    mounted = re.findall(r"file: secrets/(\S+)\}", (COMPOSE / "compose.yaml").read_text(encoding="utf-8"))
    assert sorted(mounted) == sorted(path.name for path in secrets.iterdir())


async def test_redis_does_for_our_user_what_the_store_asks(link: Link) -> None:
    assert (await link.call("INFO", "server"))["run_id"]  # what `coronet doctor` asks
    await link.call("SET", "cn:{d}:waiting", "1")
    assert await link.call("EVAL", "return redis.call('GET', KEYS[1])", 1, "cn:{d}:waiting") == b"1"


@pytest.mark.parametrize("command", ["FLUSHALL", "CONFIG GET *", "KEYS *", "SHUTDOWN", "ACL LIST", "GET another"])
async def test_redis_refuses_our_user_what_administers_endangers_or_is_not_ours(link: Link, command: str) -> None:
    with pytest.raises(StoreUnavailable, match="no permission"):
        await link.call(*command.split())


async def test_redis_does_nothing_for_strangers(redis_socket: Path) -> None:
    reader, writer = await asyncio.open_unix_connection(str(redis_socket))
    writer.write(b"GET cn:{d}:waiting\r\nPING\r\n")
    assert [(await reader.readline())[:8] for _ in range(2)] == [b"-NOAUTH "] * 2
    writer.close()
    await writer.wait_closed()


async def test_the_store_needs_no_command_that_is_refused(redis_url: str) -> None:
    async with Redis.from_url(redis_url) as anyone:
        refused = {*await anyone.acl_cat("admin"), *await anyone.acl_cat("dangerous")}
    assert "flushall" in refused
    assert len(commands_of_the_store()) > 20
    assert {name.lower() for name in commands_of_the_store()} & refused == set()


class Prosody(NamedTuple):
    """The stack's Prosody: its configuration, and the ports of people, the bot, and files."""

    config: Path
    people: int
    bot: int
    files: int


@pytest.fixture
async def prosody(secrets: Path, tmp_path: Path) -> AsyncIterator[Prosody]:
    config = tmp_path / "prosody.cfg.lua"
    server = Prosody(config, unused_port(), unused_port(), unused_port())
    config.write_text(prosody_config(secrets, tmp_path, server), encoding="utf-8")

    async def answers() -> bool:
        return all([await ports.accepts(port) for port in server[1:]])

    child = await running("prosody", ["prosody", "--config", str(config), "-F"], tmp_path, answers)
    try:
        yield server
    finally:
        await child.stop()


async def test_prosody_lets_the_bot_in_with_its_secret(secrets: Path, prosody: Prosody) -> None:
    command = ("prosodyctl", "--root", "--config", str(prosody.config), "check", "config")
    checked = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)
    words, _ = await checked.communicate()
    assert "All checks passed" in words.decode()
    secret = (secrets / "xmpp_component_password").read_text().strip()
    assert "<handshake/>" in await component_login(prosody.bot, secret)
    assert "not-authorized" in await component_login(prosody.bot, "a guess")


async def test_prosody_takes_the_bots_files_and_nodes(secrets: Path, prosody: Prosody) -> None:
    settings = Settings(
        xmpp_jid="coronet@feeds.localhost",
        xmpp_password=SecretStr((secrets / "xmpp_component_password").read_text().strip()),
        xmpp_host="127.0.0.1",
        xmpp_port=prosody.bot,
    )
    connection = Connection(settings, "test", lambda _: None)
    files = Files(own_url=f"http://localhost:{prosody.files}/", own_host=settings.xmpp_host, allow_private=False)
    keeping = asyncio.create_task(connection.run())
    try:
        url = await Uploads(connection, files).share("a.opml", b"<opml/>", "text/x-opml")
        assert url is not None
        assert await files.read(url) == b"<opml/>"
        made = await connection.ask("pubsub.localhost", "set", pubsub.creation("node", "A node", ""))
        assert made.get("type") == "result"
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


def prosody_config(secrets: Path, folder: Path, server: Prosody) -> str:
    """The configuration with this test's paths and ports in place of the container's."""
    text = (COMPOSE / "prosody/prosody.cfg.lua").read_text(encoding="utf-8")
    here = {
        '"/tmp/': f'"{folder}/',
        '"/run/secrets/': f'"{secrets}/',
        '"/data"': f'"{folder}/data"',
        '"*" }': '"127.0.0.1" }',
        "{ 5222 }": f"{{ {server.people} }}",
        "{ 5347 }": f"{{ {server.bot} }}",
        "{ 5280 }": f"{{ {server.files} }}",
        ":5280/": f":{server.files}/",
    }
    for there, instead in here.items():
        assert there in text
        text = text.replace(there, instead)
    return f"run_as_root = {str(os.geteuid() == 0).lower()}\n{text}"


async def component_login(port: int, secret: str) -> str:
    """Log in as the bot's component (XEP-0114) and return the server's answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(
            b"<stream:stream xmlns='jabber:component:accept' xmlns:stream='http://etherx.jabber.org/streams'"
            b" to='feeds.localhost'>"
        )
        opened = b""
        while not (stream_id := re.search(rb" id='([^']+)'", opened)):
            opened += await reader.readuntil(b">")
        digest = hashlib.sha1(stream_id[1] + secret.encode(), usedforsecurity=False).hexdigest()
        writer.write(f"<handshake>{digest}</handshake>".encode())
        answer = b""
        while b"<handshake/>" not in answer and b"</stream:stream>" not in answer:
            answer += await reader.readuntil(b">")
        return answer.decode()
    finally:
        writer.close()
        await writer.wait_closed()
