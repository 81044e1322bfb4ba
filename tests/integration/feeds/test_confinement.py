"""A parser process has no access to files, network and other programs, and parses every document."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from prometheus_client import REGISTRY

from service.errors import FeedError
from service.feeds.sandbox.parser_client import ParserClient
from service.feeds.sandbox.parser_handlers import parse_document
from service.feeds.sandbox.protocol import (
    LENGTH_BYTES,
    Document,
    ParsedDocument,
    ParseDocument,
    ParserResponse,
    encode_frame,
)
from tests.fuzz.__main__ import KEPT
from tests.integration.feeds.test_parser_client import children, reader_of
from tests.support.feed_corpus import Sample, damaged, encodings
from tests.support.feed_documents import item, page, rss

URL = "https://example.com/feed"
ATTEMPTS = """
import ctypes, os, resource, socket, sys
from service.feeds.sandbox import confinement

if sys.argv[1] == "rlimits":
    confinement._filter_for = lambda machine: None
libc = ctypes.CDLL(None, use_errno=True)

def traced():
    if libc.ptrace(16, os.getppid(), 0, 0) != 0:
        raise PermissionError

def raised():
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    open("/etc/passwd")

attempts = {
    "read a file": lambda: open("/etc/passwd"),
    "write a file": lambda: open("/tmp/confined", "w"),
    "list a directory": lambda: os.listdir("/"),
    "TCP": lambda: socket.socket(),
    "UDP": lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM),
    "a local socket": lambda: socket.socket(socket.AF_UNIX),
    "a pair of sockets": lambda: socket.socketpair(),
    "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "a pipe": lambda: os.pipe(),
    "look at a path": lambda: os.stat("/etc/passwd"),
    "fork": lambda: os.fork() or os._exit(0),
    "run a program": lambda: os.execv("/bin/true", ["true"]),
    "signal another process": lambda: os.kill(os.getppid(), 0),
    "trace another process": traced,
    "raise a limit": raised,
}
print(confinement.confine())
for name, attempt in attempts.items():
    try:
        attempt()
    except (OSError, ValueError):
        print(name)
"""
REFUSED_BY_LIMITS = {"read a file", "write a file", "list a directory", "TCP", "UDP", "a local socket"} | {
    "a pair of sockets",
    "netlink",
    "a pipe",
}
REFUSED = REFUSED_BY_LIMITS | {
    "look at a path",
    "fork",
    "run a program",
    "signal another process",
    "trace another process",
    "raise a limit",
}


@pytest.mark.parametrize(("confinement", "refused"), [("seccomp", REFUSED), ("rlimits", REFUSED_BY_LIMITS)])
def test_a_confined_process_has_no_access_to_files_network_and_programs(confinement: str, refused: set[str]) -> None:
    program = subprocess.run(
        (sys.executable, "-P", "-c", ATTEMPTS, confinement), stdout=subprocess.PIPE, text=True, check=False
    )
    said, *found = program.stdout.splitlines()
    assert said == confinement
    assert refused <= set(found)


async def test_a_parser_process_is_confined_before_its_first_response() -> None:
    async with ParserClient() as pool:
        await pool.parse_document(Document(rss([item("a")]), URL, {}))
        child = reader_of(*children())
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{child}/status").read_text().splitlines())
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        limits = Path(f"/proc/{child}/limits").read_text()
        assert "Max open files            0                    0" in limits
        assert "Max processes             0                    0" in limits
    assert REGISTRY.get_sample_value("coronet_parser_without_seccomp") == 0


@pytest.mark.parametrize("confinement", ["seccomp", "rlimits"])
def test_a_confined_process_parses_every_kind_of_document(confinement: Literal["seccomp", "rlimits"]) -> None:
    kept = (path.read_bytes() for path in sorted((KEPT / "parse").iterdir())[::4])
    samples = [
        *encodings(),
        *damaged(),
        *(Sample("fuzzed", body) for body in kept),
        Sample("a page", page(["/rss"]), "text/html"),
        Sample("a host in another script", rss([item("a")]).replace(b"example.com", "пример.испытание".encode())),
    ]
    jobs = [ParseDocument(Document(each.body, URL, {"content-type": each.content_type}), "div > a") for each in samples]
    answers = _answers(confinement, jobs)
    assert [_outcome(job) for job in jobs] == [
        answer.result or (answer.fault.code if answer.fault else "") for answer in answers
    ]


def _outcome(job: ParseDocument) -> ParsedDocument | str:
    try:
        return parse_document(job)
    except FeedError as error:
        return error.code


def _answers(confinement: str, jobs: Iterable[ParseDocument]) -> list[ParserResponse[ParsedDocument]]:
    """Return the responses to these requests of a parser process with that confinement."""
    program = (
        "from service.feeds.sandbox import confinement, parser_process\n"
        f"if {confinement!r} == 'rlimits': confinement._filter_for = lambda machine: None\n"
        "parser_process.main()\n"
    )
    told = b"".join(map(encode_frame, jobs))
    output = subprocess.run(
        (sys.executable, "-P", "-c", program, "0"), input=told, stdout=subprocess.PIPE, check=True
    ).stdout
    answers = [msgspec.msgpack.decode(each, type=ParserResponse[ParsedDocument]) for each in _frames(output)]
    assert {answer.confinement for answer in answers} == {confinement}
    return answers


def _frames(output: bytes) -> Iterable[bytes]:
    while output:
        end = LENGTH_BYTES + int.from_bytes(output[:LENGTH_BYTES], "big")
        yield output[LENGTH_BYTES:end]
        output = output[end:]
