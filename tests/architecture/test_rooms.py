"""What each room may touch. The rules are in docs/architecture.md and the packages' docstrings."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.sources import PROGRAMS, ROOT, Finding, breaches, imported, python_files

PURE = (
    "service/overlay",
    "service/corona",
    "service/clash",
    "service/discovery",
    "service/location",
    "service/feeds",
    "service/simulate",
    "bots/commands/parser",
    "bots/dialogue/settings_parser",
    "bots/replies",
    "service/users/preferences",
)

# Rooms of feeds that run the parser in a child that can be killed; what they run there is pure.
SHELLS = (
    "service/feeds/sandbox/parser_pool",
    "service/feeds/sandbox/parser_process",
    "service/feeds/sandbox/confinement",
)

IMPURE_MODULES = re.compile(
    r"(asyncio|random|secrets|uuid|os|io|logging|structlog|socket|subprocess|threading|redis|aiohttp|slixmpp"
    r"|service\.(clock|settings|store|net|console|embedded))(\.|$)"
)
ASYNC = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
CLOCKS = re.compile(r"time\.(?!struct_time$)|.*\.(now|utcnow|today)$")

# The stack starts programs: it looks for them on PATH, and hands its environment on to them, unread.
READS_ENVIRONMENT = ("service/settings", "service/embedded")
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv"}


def impurities(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ASYNC):
            yield node.lineno, "waits"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = (name for name in imported(node) if IMPURE_MODULES.match(name) or CLOCKS.match(name))
            yield from ((node.lineno, f"imports {name}") for name in names)
        elif isinstance(node, ast.Attribute) and CLOCKS.match(ast.unparse(node)):
            yield node.lineno, f"asks the clock: {ast.unparse(node)}"


def environment_reads(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT and ast.unparse(node.value) == "os":
            yield node.lineno, f"os.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and ENVIRONMENT & {name.removeprefix("os.") for name in imported(node)}:
            yield node.lineno, "imports the environment"


def http_clients(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        names = {name.rpartition(".")[2] for name in imported(node)}
        if "ClientSession" in names or (isinstance(node, ast.Attribute) and node.attr == "ClientSession"):
            yield getattr(node, "lineno", 0), "an HTTP client"


def http_servers(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        names = {name.rpartition(".")[2] for name in imported(node)}
        if "AppRunner" in names or (isinstance(node, ast.Attribute) and node.attr == "AppRunner"):
            yield getattr(node, "lineno", 0), "an HTTP server"


def key_names(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("cn:"):
            yield node.lineno, f"writes a key's name: {node.value!r}"


def unsafe_interpreters(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Tuple | ast.List | ast.Call):
            continue
        words = [ast.unparse(word) for word in (node.args if isinstance(node, ast.Call) else node.elts)]
        if "sys.executable" in words and words[words.index("sys.executable") + 1 :][:1] != ["'-P'"]:
            yield node.lineno, "starts Python with the current directory's modules"


def everything_but(*exceptions: str) -> list[Path]:
    """Return every file of the three programs that stands in none of these places."""
    allowed = python_files(*exceptions)
    assert allowed, f"There is nothing at {exceptions}: the exception can go."
    return [path for path in python_files(*PROGRAMS) if path not in allowed]


def test_pure_rooms_hold_no_await_clock_randomness_environment_or_driver() -> None:
    shells = python_files(*SHELLS)
    found = breaches([path for path in python_files(*PURE) if path not in shells], impurities)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        "started_s = time.monotonic()",
        "from time import time",
        "import os.path",
        "from random import Random",
        "from service.clock import SystemClock",
        "from service import store",
        "async def decide(): ...",
        "today = date.today()",
    ],
)
def test_a_line_that_makes_a_room_impure_is_noticed(line: str) -> None:
    assert len(list(impurities(ast.parse(line)))) == 1


@pytest.mark.parametrize(
    "line", ["import timeit", "when: time.struct_time", "from service.model import Delta", "def at(now_s: float): ..."]
)
def test_a_line_that_leaves_a_room_pure_is_left_alone(line: str) -> None:
    assert list(impurities(ast.parse(line))) == []


def test_only_the_settings_read_the_environment() -> None:
    found = breaches(everything_but(*READS_ENVIRONMENT), environment_reads)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("line", ["home = os.environ['HOME']", "os.getenv('HOME')", "from os import environ, path"])
def test_reading_the_environment_is_noticed(line: str) -> None:
    assert len(list(environment_reads(ast.parse(line)))) == 1


def test_only_the_net_room_makes_http_clients() -> None:
    """Publishers are reached through the socket guard or not at all."""
    found = breaches(everything_but("service/net"), http_clients)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("line", ["from aiohttp import ClientSession", "aiohttp.ClientSession()"])
def test_an_http_client_is_noticed(line: str) -> None:
    assert len(list(http_clients(ast.parse(line)))) == 1


def test_only_one_module_makes_http_servers() -> None:
    """Every server has the deadlines and limits of that one; the sample publisher is for this machine alone."""
    found = breaches(everything_but("service/net/http_server", "service/embedded/sample_publisher"), http_servers)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("line", ["from aiohttp.web import AppRunner", "runner = web.AppRunner(app)"])
def test_an_http_server_is_noticed(line: str) -> None:
    assert len(list(http_servers(ast.parse(line)))) == 1


def test_only_the_modules_of_keys_name_redis_keys() -> None:
    found = breaches(everything_but("service/store/client/keys"), key_names)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("line", ["key = 'cn:{r}:nodes'", "key = f'cn:{{u:{uid}}}:out'"])
def test_a_key_named_elsewhere_is_noticed(line: str) -> None:
    assert len(list(key_names(ast.parse(line)))) == 1


def test_scripts_get_every_key_in_keys() -> None:
    """A Redis Cluster must know from KEYS alone where a script may run."""
    made = re.compile(r"""["']cn:|KEYS\[\d+\]\s*\.\.""")
    scripts = sorted((ROOT / "service/store/scripts").glob("*.lua"))
    assert scripts
    assert [path.name for path in scripts if made.search(path.read_text(encoding="utf-8"))] == []


def test_every_interpreter_is_started_without_the_current_directory() -> None:
    found = breaches(python_files(*PROGRAMS), unsafe_interpreters)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line", ["run((sys.executable, '-m', 'x'))", "run(sys.executable, 'x.py')", "[sys.executable]"]
)
def test_an_interpreter_with_the_current_directory_is_noticed(line: str) -> None:
    assert len(list(unsafe_interpreters(ast.parse(line)))) == 1
