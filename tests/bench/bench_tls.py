"""CPU cost of a poll over a new TLS connection: polls per second of CPU time.

Publishers are polled too rarely to keep connections open, so that most polls need a new one. Run it alone on the
machine: ``python -m tests.bench.bench_tls``. Prints one JSON object: the rate of a :class:`Fetcher`, that of bare
asyncio streams which send the same request to the same server, and their ratio. Both resolve a name, verify an ECDSA
certificate, and read a response with status 304; the server runs in its own process.
"""

import asyncio
import json
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import trustme

from service.model import Validators
from service.net.address_guard import AddressGuard
from service.net.fetcher import Fetcher

ROUNDS = 5
POLLS_PER_ROUND = 200
KNOWN = Validators('"1"', "Fri, 20 Nov 2026 10:00:00 GMT", "0" * 64)
ANSWER = b'HTTP/1.1 304 Not Modified\r\nETag: "1"\r\nCache-Control: max-age=300\r\nConnection: close\r\n\r\n'
REQUEST = b'GET /feed HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: "1"\r\nConnection: close\r\n\r\n'


async def serve(certificate: str) -> None:
    """Answer 304 on a port of our own, which is printed, until standard input ends."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201 - whoever started us reads it
        await asyncio.to_thread(sys.stdin.read)


@contextmanager
def publisher(folder: Path) -> Iterator[int]:
    """Run a publisher whose certificate this process trusts; yield its port."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "authority.pem")
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    os.environ["SSL_CERT_FILE"] = str(folder / "authority.pem")
    command = [sys.executable, "-m", "tests.bench.bench_tls", str(folder / "server.pem")]
    with Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin, process.stdout
        try:
            yield int(process.stdout.readline())  # type: ignore[union-attr]  # it is a pipe
        finally:
            process.stdin.close()


async def polls_per_cpu_s(poll: Callable[[], Awaitable[object]]) -> float:
    """Return the rate of one round."""
    began_s = time.process_time()
    for _ in range(POLLS_PER_ROUND):
        await poll()
    return POLLS_PER_ROUND / (time.process_time() - began_s)


async def measure(port: int) -> dict[str, float]:
    """Return the rates of both clients."""
    context = ssl.create_default_context()

    async def bare() -> None:
        reader, writer = await asyncio.open_connection("localhost", port, ssl=context)
        writer.write(REQUEST)
        await reader.read()
        writer.close()
        await writer.wait_closed()

    async def fetched() -> None:
        await fetcher.fetch(f"https://localhost:{port}/feed", KNOWN)

    async with Fetcher("Coronet/0 (+bench)", AddressGuard(allow_private=True)) as fetcher:
        rounds = [(await polls_per_cpu_s(fetched), await polls_per_cpu_s(bare)) for _ in range(ROUNDS)]
    # The best round of each: what else runs on the machine only ever slows one down.
    ours, floor = (max(rates) for rates in zip(*rounds, strict=True))
    return {"polls_per_cpu_s": round(ours), "bare_polls_per_cpu_s": round(floor), "ratio": round(ours / floor, 2)}


def main() -> None:
    """Run the benchmark and print its results."""
    with tempfile.TemporaryDirectory() as folder, publisher(Path(folder)) as port:
        print(json.dumps(asyncio.run(measure(port)), indent=1))  # noqa: T201 - the result


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(serve(sys.argv[1]))
    else:
        main()
