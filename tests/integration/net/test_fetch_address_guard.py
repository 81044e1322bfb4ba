"""No connection reaches a private address, however it is spelled."""

import asyncio
import socket

import pytest

from service.errors import AddressRefused, BadRedirect, BadUrl, HostNotFound, PortRefused
from service.net.fetcher import Fetcher
from tests.support.raw_http import answering, ok, raw_publisher, redirect


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "127.1", "[::ffff:127.0.0.1]", "[::1]"]
)
async def test_loopback_addresses_are_refused_in_any_notation(strict_fetcher: Fetcher, host: str) -> None:
    async with raw_publisher(answering(ok(b"secret"))) as publisher:
        with pytest.raises(AddressRefused, match="not a public address"):
            await strict_fetcher.fetch(publisher.url(host=host))
        assert publisher.connections == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.0.0.1", "169.254.169.254", "[64:ff9b::7f00:1]"])  # noqa: S104 - asked of, not bound
async def test_allow_private_allows_loopback_only(fetcher: Fetcher, host: str) -> None:
    with pytest.raises(AddressRefused):
        await fetcher.fetch(f"http://{host}/")


async def test_a_redirect_to_a_private_address_is_refused_without_a_connection(fetcher: Fetcher) -> None:
    async with raw_publisher(answering(redirect("http://169.254.169.254/latest/meta-data"))) as publisher:
        with pytest.raises(AddressRefused, match=r"169\.254\.169\.254"):
            await fetcher.fetch(publisher.url())


async def test_a_name_that_changes_its_address_is_checked_again(
    strict_fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the address to which the socket connects is checked."""
    async with raw_publisher(answering(ok(b"secret"))) as publisher:
        session = strict_fetcher._session
        asked: list[str] = []

        async def resolve(host: str, port: int, **_: object) -> list[dict[str, object]]:
            asked.append(host)
            return [
                {"hostname": host, "host": "127.0.0.1", "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}
            ]

        monkeypatch.setattr(session.connector, "_resolve_host", resolve)
        for _ in range(2):
            with pytest.raises(AddressRefused):
                await strict_fetcher.fetch(publisher.url(host="rebound.example"))
        assert asked == ["rebound.example"] * 2
        assert publisher.connections == 0


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "gopher://127.0.0.1/", "http://u:p@127.0.0.1/", "http://a.example/\\@b"]
)
async def test_a_redirect_with_an_invalid_url_is_refused(fetcher: Fetcher, target: str) -> None:
    async with raw_publisher(answering(redirect(target))) as publisher:
        with pytest.raises(BadRedirect, match="no usable URL"):
            await fetcher.fetch(publisher.url())


async def test_a_port_of_another_service_is_refused(strict_fetcher: Fetcher) -> None:
    with pytest.raises(PortRefused, match="Port 6379"):
        await strict_fetcher.fetch("http://8.8.8.8:6379/")


async def test_an_unknown_host_name_is_reported(strict_fetcher: Fetcher) -> None:
    with pytest.raises(HostNotFound, match=r"nowhere\.invalid"):
        await strict_fetcher.fetch("https://nowhere.invalid/")


async def test_an_invalid_url_sends_no_request(fetcher: Fetcher) -> None:
    with pytest.raises(BadUrl):
        await fetcher.fetch("file:///etc/passwd")


async def test_refused_connections_leave_no_socket(strict_fetcher: Fetcher) -> None:
    async with raw_publisher(answering(ok(b"secret"))) as publisher:
        outcomes = await asyncio.gather(
            *(strict_fetcher.fetch(publisher.url(host="localhost")) for _ in range(20)), return_exceptions=True
        )
    assert {type(outcome) for outcome in outcomes} == {AddressRefused}
