"""The three answers every process gives over HTTP."""

import socket

import aiohttp
import pytest
from aiohttp.test_utils import unused_port

from service.console.health import serve_health
from service.errors import StoreUnavailable
from service.metrics import POLLS


async def _get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def test_a_ready_process_says_so_on_a_port_of_its_own() -> None:
    async def ready() -> None:
        return

    server = await serve_health("127.0.0.1", 0, ready)
    try:
        assert await _get(f"{server.url}/livez") == (200, "alive\n")
        assert await _get(f"{server.url}/readyz") == (200, "ready\n")
    finally:
        await server.close()


async def test_a_process_that_cannot_work_is_alive_and_says_why_it_is_not_ready() -> None:
    async def ready() -> None:
        raise StoreUnavailable("Redis at example cannot be reached.")

    server = await serve_health("127.0.0.1", 0, ready)
    try:
        assert await _get(f"{server.url}/livez") == (200, "alive\n")
        assert await _get(f"{server.url}/readyz") == (503, "Redis at example cannot be reached.\n")
    finally:
        await server.close()


async def test_metrics_show_what_the_process_counted() -> None:
    async def ready() -> None:
        return

    POLLS.labels("counted-here").inc(7)
    server = await serve_health("127.0.0.1", 0, ready)
    try:
        status, text = await _get(f"{server.url}/metrics")
    finally:
        await server.close()
    assert status == 200
    assert 'coronet_polls_total{outcome="counted-here"} 7.0' in text


async def test_a_server_on_every_address_is_named_by_its_host() -> None:
    """Other machines read the URL, in a ring's lease; 0.0.0.0 would lead them to themselves."""

    async def ready() -> None:
        return

    server = await serve_health("0.0.0.0", 0, ready)  # noqa: S104 - the case itself
    try:
        assert server.url.startswith(f"http://{socket.gethostname()}:")
    finally:
        await server.close()


async def test_a_taken_port_is_an_error_and_leaves_nothing_behind() -> None:
    async def ready() -> None:
        return

    port = unused_port()
    server = await serve_health("127.0.0.1", port, ready)
    try:
        with pytest.raises(OSError, match=str(port)):
            await serve_health("127.0.0.1", port, ready)
    finally:
        await server.close()
