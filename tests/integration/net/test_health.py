"""The three answers every process gives over HTTP."""

import socket

import aiohttp
import pytest
from aiohttp.test_utils import unused_port

from service.errors import OperationalError, Unreachable
from service.net.health_endpoints import serve_health
from service.net.internal_clients import ProcessClient
from service.observability.metrics import POLLS
from service.settings import load
from service.store import open_store


async def _get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def test_a_ready_process_responds_with_200() -> None:
    async def ready() -> None:
        return

    async with serve_health("127.0.0.1", 0, ready) as server:
        assert await _get(f"{server.url}/livez") == (200, "alive\n")
        assert await _get(f"{server.url}/readyz") == (200, "ready\n")


async def test_a_process_that_is_not_ready_is_alive_and_has_a_reason() -> None:
    async def ready() -> None:
        raise OperationalError("There is no session with the XMPP server.")

    async with serve_health("127.0.0.1", 0, ready) as server:
        assert await _get(f"{server.url}/livez") == (200, "alive\n")
        assert await _get(f"{server.url}/readyz") == (503, "There is no session with the XMPP server.\n")


async def test_readiness_does_not_reveal_the_address_of_redis() -> None:
    port = unused_port()
    settings = load({}, redis_url=f"redis://:a-password@127.0.0.1:{port}/3")
    store = open_store(settings)
    async with (
        serve_health("127.0.0.1", 0, store.ping) as server,
        aiohttp.ClientSession() as session,
        session.get(f"{server.url}/readyz") as answer,
    ):
        assert (answer.status, await answer.text()) == (503, "Redis does not answer.\n")
        assert answer.headers["Server"] == "coronet"
    await store.close()


@pytest.mark.parametrize(
    ("networks", "token", "sent", "status"),
    [
        ("127.0.0.0/8", "", {}, 200),
        ("192.0.2.0/24, 2001:db8::/32", "", {}, 403),
        ("", "", {"Authorization": "Bearer "}, 403),
        ("", "a-token", {}, 403),
        ("", "a-token", {"Authorization": "Bearer another"}, 403),
        ("", "a-token", {"Authorization": "Basic a-token"}, 403),
        ("", "a-token", {"Authorization": "Bearer a-token"}, 200),
        ("127.0.0.0/8", "", {"X-Forwarded-For": "127.0.0.1"}, 403),
        ("127.0.0.0/8", "", {"Forwarded": "for=127.0.0.1"}, 403),
    ],
)
async def test_metrics_need_an_allowed_network_or_the_token(
    networks: str, token: str, sent: dict[str, str], status: int
) -> None:
    """The last two requests passed an untrusted proxy, so that the client is unknown."""

    async def ready() -> None:
        return

    settings = load({}, metrics_networks=networks, metrics_token=token)
    async with (
        serve_health("127.0.0.1", 0, ready, settings=settings) as server,
        aiohttp.ClientSession(headers=sent) as session,
    ):
        async with session.get(f"{server.url}/metrics") as answer:
            assert answer.status == status
            assert ("coronet_polls_total" in await answer.text()) is (status == 200)
        async with session.get(f"{server.url}/livez") as answer:
            assert answer.status == 200


async def test_the_console_reads_metrics_of_its_processes_with_the_token() -> None:
    async def ready() -> None:
        return

    settings = load({}, metrics_networks="", metrics_token="a-token")
    async with serve_health("127.0.0.1", 0, ready, settings=settings) as server:
        async with ProcessClient("a-token") as processes:
            assert "coronet_polls_total" in await processes.metrics(f"{server.url}/metrics")
        async with ProcessClient() as processes:
            with pytest.raises(Unreachable, match="403"):
                await processes.metrics(f"{server.url}/metrics")


async def test_metrics_have_the_counters_of_the_process() -> None:
    async def ready() -> None:
        return

    POLLS.labels("counted-here").inc(7)
    async with serve_health("127.0.0.1", 0, ready) as server:
        status, text = await _get(f"{server.url}/metrics")
    assert status == 200
    assert 'coronet_polls_total{outcome="counted-here"} 7.0' in text


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", "application/openmetrics-text"),
        ("text/plain;version=0.0.4", "text/plain"),
        ("*/*", "text/plain"),
    ],
)
async def test_metrics_are_in_the_format_that_the_client_accepts(accept: str, content_type: str) -> None:
    async def ready() -> None:
        return

    async with serve_health("127.0.0.1", 0, ready) as server:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{server.url}/metrics", headers={"Accept": accept}) as answer,
        ):
            text = await answer.text()
        assert answer.content_type == content_type
        assert text.endswith("# EOF\n") is (content_type == "application/openmetrics-text")


async def test_the_url_of_a_server_on_all_addresses_contains_the_host_name() -> None:
    """Other machines read the URL, in a ring's lease; 0.0.0.0 would lead them to themselves."""

    async def ready() -> None:
        return

    async with serve_health("0.0.0.0", 0, ready) as server:  # noqa: S104 - the case itself
        assert server.url.startswith(f"http://{socket.gethostname()}:")


async def test_a_bound_port_raises_an_error_and_leaves_no_resources() -> None:
    async def ready() -> None:
        return

    port = unused_port()
    async with serve_health("127.0.0.1", port, ready):
        with pytest.raises(OperationalError, match=f"port {port}: address already in use"):
            await serve_health("127.0.0.1", port, ready).__aenter__()
