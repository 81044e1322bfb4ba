"""What each package may use: I/O, clocks, the environment, HTTP, Redis keys. See docs/architecture.md."""

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
    "bots/commands",
    "bots/dialogue/settings_parser",
    "bots/replies",
    "service/users",
)

# Modules of feeds that run the parser in a child process; the code that they run there is pure.
IMPURE_IN_FEEDS = (
    "service/feeds/sandbox/parser_client",
    "service/feeds/sandbox/parser_process",
    "service/feeds/sandbox/confinement",
    "service/feeds/sandbox/resource_limits",
)

IMPURE_MODULES = re.compile(
    r"(asyncio|random|secrets|uuid|os|io|logging|structlog|socket|subprocess|threading|redis|aiohttp|slixmpp"
    r"|service\.(clock|settings|store|net|console|embedded))(\.|$)"
)
ASYNC = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
CLOCKS = re.compile(r"time\.(?!struct_time$)|.*\.(now|utcnow|today)$")

# service.embedded starts programs: it searches PATH for them and passes its environment on.
READS_ENVIRONMENT = ("service/settings", "service/embedded")
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv"}


def impurities(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ASYNC):
            yield node.lineno, "uses async"
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = (name for name in imported(node) if IMPURE_MODULES.match(name) or CLOCKS.match(name))
            yield from ((node.lineno, f"imports {name}") for name in names)
        elif isinstance(node, ast.Attribute) and CLOCKS.match(ast.unparse(node)):
            yield node.lineno, f"reads the clock: {ast.unparse(node)}"


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
            yield node.lineno, f"contains a key name: {node.value!r}"


def unsafe_interpreters(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Tuple | ast.List | ast.Call):
            continue
        words = [ast.unparse(word) for word in (node.args if isinstance(node, ast.Call) else node.elts)]
        if "sys.executable" in words and words[words.index("sys.executable") + 1 :][:1] != ["'-P'"]:
            yield node.lineno, "starts Python with the current directory on the import path"


def everything_but(*exceptions: str) -> list[Path]:
    """Return every production file except those of these packages and modules."""
    allowed = python_files(*exceptions)
    assert allowed, f"{exceptions} do not exist: remove the exception."
    return [path for path in python_files(*PROGRAMS) if path not in allowed]


def test_pure_packages_use_no_await_clock_randomness_environment_or_driver() -> None:
    impure = python_files(*IMPURE_IN_FEEDS)
    found = breaches([path for path in python_files(*PURE) if path not in impure], impurities)
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
def test_an_impure_line_is_reported(line: str) -> None:
    assert len(list(impurities(ast.parse(line)))) == 1


@pytest.mark.parametrize(
    "line", ["import timeit", "when: time.struct_time", "from service.model import Delta", "def at(now_s: float): ..."]
)
def test_a_pure_line_is_accepted(line: str) -> None:
    assert list(impurities(ast.parse(line))) == []


def test_only_settings_read_the_environment() -> None:
    found = breaches(everything_but(*READS_ENVIRONMENT), environment_reads)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("line", ["home = os.environ['HOME']", "os.getenv('HOME')", "from os import environ, path"])
def test_reading_the_environment_is_reported(line: str) -> None:
    assert len(list(environment_reads(ast.parse(line)))) == 1


def test_only_service_net_creates_http_clients() -> None:
    """Every request to a publisher passes the address guard."""
    found = breaches(everything_but("service/net"), http_clients)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("line", ["from aiohttp import ClientSession", "aiohttp.ClientSession()"])
def test_an_http_client_is_reported(line: str) -> None:
    assert len(list(http_clients(ast.parse(line)))) == 1


def test_only_one_module_creates_http_servers() -> None:
    """Every server has the time-outs and limits of that module; the sample publisher listens on loopback only."""
    found = breaches(everything_but("service/net/http_server", "service/embedded/sample_publisher"), http_servers)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("line", ["from aiohttp.web import AppRunner", "runner = web.AppRunner(app)"])
def test_an_http_server_is_reported(line: str) -> None:
    assert len(list(http_servers(ast.parse(line)))) == 1


def test_only_the_keys_module_contains_redis_key_names() -> None:
    found = breaches(everything_but("service/store/client/keys"), key_names)
    assert not found, "\n".join(found)


@pytest.mark.parametrize("line", ["key = 'cn:{r}:nodes'", "key = f'cn:{{u:{uid}}}:out'"])
def test_a_redis_key_name_is_reported(line: str) -> None:
    assert len(list(key_names(ast.parse(line)))) == 1


def test_lua_scripts_build_no_key_names() -> None:
    """A Redis Cluster determines from KEYS alone on which node a script runs."""
    built_key = re.compile(r"""["']cn:|KEYS\[\d+\]\s*\.\.""")
    scripts = sorted((ROOT / "service/store/scripts").glob("*.lua"))
    assert scripts
    assert [path.name for path in scripts if built_key.search(path.read_text(encoding="utf-8"))] == []


def test_python_is_started_without_the_current_directory_on_the_import_path() -> None:
    found = breaches(python_files(*PROGRAMS), unsafe_interpreters)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "line", ["run((sys.executable, '-m', 'x'))", "run(sys.executable, 'x.py')", "[sys.executable]"]
)
def test_python_with_the_current_directory_on_the_import_path_is_reported(line: str) -> None:
    assert len(list(unsafe_interpreters(ast.parse(line)))) == 1
