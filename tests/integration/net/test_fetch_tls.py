"""Certificates are verified, and errors name their fault."""

import asyncio
import datetime as dt
import ssl
from pathlib import Path

import pytest
import trustme

from service.errors import BadRedirect, TlsFailed
from service.net.address_guard import AddressGuard
from service.net.fetcher import Fetcher
from tests.integration.net.conftest import AGENT
from tests.support.raw_http import answering, ok, raw_publisher, redirect


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """Return a certificate authority that is trusted during the test."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    return authority


def server(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


async def fetch(url: str) -> bytes | None:
    async with Fetcher(AGENT, AddressGuard(allow_private=True)) as fetcher:
        return (await fetcher.fetch(url)).body


async def test_a_valid_certificate_is_accepted(authority: trustme.CA) -> None:
    async with raw_publisher(answering(ok(b"fine")), tls=server(authority.issue_cert("localhost"))) as publisher:
        assert await fetch(publisher.url(host="localhost", scheme="https")) == b"fine"


async def test_an_expired_certificate_is_reported(authority: trustme.CA) -> None:
    past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    certificate = authority.issue_cert("localhost", not_before=past, not_after=past + dt.timedelta(days=90))
    async with raw_publisher(answering(ok(b"x")), tls=server(certificate)) as publisher:
        with pytest.raises(TlsFailed, match="has expired"):
            await fetch(publisher.url(host="localhost", scheme="https"))


async def test_a_certificate_for_another_name_is_reported(authority: trustme.CA) -> None:
    async with raw_publisher(answering(ok(b"x")), tls=server(authority.issue_cert("example.com"))) as publisher:
        with pytest.raises(TlsFailed, match="is for another name"):
            await fetch(publisher.url(host="localhost", scheme="https"))


async def test_an_unknown_authority_is_reported() -> None:
    async with raw_publisher(answering(ok(b"x")), tls=server(trustme.CA().issue_cert("localhost"))) as publisher:
        with pytest.raises(TlsFailed, match="not trusted here"):
            await fetch(publisher.url(host="localhost", scheme="https"))


async def test_a_server_without_tls_is_reported() -> None:
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as mail_server:
        with pytest.raises(TlsFailed, match="TLS handshake with"):
            await fetch(f"https://localhost:{mail_server.sockets[0].getsockname()[1]}/")


async def test_a_redirect_from_https_to_http_is_refused(authority: trustme.CA) -> None:
    async with (
        raw_publisher(answering(ok(b"plain"))) as plain,
        raw_publisher(answering(redirect(plain.url())), tls=server(authority.issue_cert("localhost"))) as publisher,
    ):
        with pytest.raises(BadRedirect, match="from https to http"):
            await fetch(publisher.url(host="localhost", scheme="https"))
        assert plain.connections == 0
