"""File uploads: discovery of the service, size limits, headers, and refused addresses."""

from collections.abc import AsyncIterator
from pathlib import Path
from xml.etree.ElementTree import XML, Element

import pytest
import pytest_asyncio
import trustme

from bots.xmpp.file_upload import FileUploader
from service.errors import AddressRefused, TlsFailed, UploadRefused
from service.net.address_guard import AddressGuard
from service.net.http_upload_client import HttpUploadClient
from service.settings import SettingsInvalid
from tests.support.bad_input import certified
from tests.support.raw_http import RawPublisher, answering, ok, raw_publisher

INFO = "http://jabber.org/protocol/disco#info"
FORM = "<x xmlns='jabber:x:data'><field var='max-file-size'><value>1000</value></field></x>"
ACCEPTS_UPLOADS = f"<iq><query xmlns='{INFO}'><feature var='urn:xmpp:http:upload:0'/>{FORM}</query></iq>"
ITEMS = (
    "<iq><query xmlns='http://jabber.org/protocol/disco#items'><item jid='rooms.example.org'/>"
    "<item jid='files.example.org'/></query></iq>"
)


class Server:
    """An XMPP server with a service that accepts files of up to 1,000 bytes, as an XmppClient."""

    address = "coronet@feeds.example.org"
    is_account = False

    def __init__(self, slot: str) -> None:
        self.slot = slot

    async def request(self, to: str, _kind: str, content: str) -> Element:
        if "http:upload" in content:
            return XML(self.slot)
        if "disco#items" in content:
            return XML(ITEMS if to == "example.org" else "<iq/>")
        return XML(ACCEPTS_UPLOADS if to == "files.example.org" else f"<iq><query xmlns='{INFO}'/></iq>")


def slot(url: str, headers: str = "") -> str:
    return f"<iq><slot xmlns='urn:xmpp:http:upload:0'><put url='{url}'>{headers}</put><get url='{url}'/></slot></iq>"


def upload_client(own_url: str = "", *, allow_private: bool = False, ca_file: Path | str = "") -> HttpUploadClient:
    return HttpUploadClient(own_url, "127.0.0.1" if own_url else "", AddressGuard(allow_private), str(ca_file))


def uploader(server: Server, own: HttpUploadClient) -> FileUploader:
    return FileUploader(server, own)  # type: ignore[arg-type] # as much of the interface as is used


@pytest_asyncio.fixture
async def http() -> AsyncIterator[RawPublisher]:
    async with raw_publisher(answering(ok(b"<opml/>"))) as running:
        yield running


async def test_only_allowed_headers_are_sent_with_an_upload(http: RawPublisher) -> None:
    headers = "<header name='authorization'>Bearer&#10; x</header><header name='Host'>evil.example</header>"
    server = Server(slot(http.url("/1"), headers))
    assert await uploader(server, upload_client(http.url("/"))).share("a.opml", b"body", "text/x-opml") == http.url(
        "/1"
    )
    (head,) = http.requests
    assert head.startswith("PUT /1 ")
    assert "Authorization: Bearer x\r\n" in head
    assert "Content-Length: 4\r\n" in head
    assert "evil" not in head


async def test_files_of_the_own_server_are_read_from_its_configured_host(http: RawPublisher) -> None:
    url = http.url("/files/1", host="chat.example.org")
    own = upload_client(http.url("/files/", host="chat.example.org"))
    assert await own.read(url) == b"<opml/>"
    assert own.is_own(url)
    assert not own.is_own(http.url("/files/../admin", host="chat.example.org"))
    assert not own.is_own(http.url("/files", host="chat.example.org.evil.example"))


async def test_without_an_upload_service_the_result_is_none() -> None:
    server = Server("<iq/>")
    server.address = "coronet@feeds.example.net"
    assert await uploader(server, upload_client()).share("a.opml", b"body", "text/x-opml") is None


QUOTA = (
    "<iq type='error'><error type='wait'><resource-constraint xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>"
    "<text xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'>Daily quota reached</text></error></iq>"
)


@pytest.mark.parametrize(
    ("response", "size_bytes", "reason"),
    [
        (QUOTA, 10, "Daily quota reached"),
        (slot("https://127.0.0.1/1"), 10, "not a public address"),
        (slot("https://10.0.0.1:5443/1"), 10, "not a public address"),
        (slot("http://files.example/1"), 10, "with https only"),
        (slot("file:///etc/passwd"), 10, "isn't a web address"),
        ("<iq/>", 10, "undefined-condition"),
        (slot("https://files.example/1"), 1001, "up to 1,000 bytes"),
    ],
)
async def test_a_failed_upload_raises_the_reason(response: str, size_bytes: int, reason: str) -> None:
    with pytest.raises(UploadRefused, match=reason):
        await uploader(Server(response), upload_client()).share("a.opml", b"x" * size_bytes, "text/x-opml")


@pytest.mark.parametrize("url", ["https://[::1]/1", "http://127.0.0.1/1"])
async def test_private_addresses_other_than_the_own_server_are_refused(url: str) -> None:
    with pytest.raises(AddressRefused):
        await upload_client("https://files.example/").read(url)


@pytest.mark.parametrize("is_own", [True, False])
async def test_files_are_exchanged_with_a_server_whose_private_authority_is_trusted(
    tmp_path: Path, *, is_own: bool
) -> None:
    authority, ca_file = trustme.CA(), tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    certificate = certified(authority.issue_cert("localhost"))
    async with raw_publisher(answering(ok(b"<opml/>")), tls=certificate) as http:
        url = http.url("/1", host="localhost").replace("http:", "https:")
        own_url = url.removesuffix("1") if is_own else ""
        trusting = upload_client(own_url, allow_private=True, ca_file=ca_file)
        await trusting.write(url, b"body", {})
        assert await trusting.read(url) == b"<opml/>"
        with pytest.raises(TlsFailed):
            await upload_client(own_url, allow_private=True).read(url)


def test_an_authority_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    for ca_file in (tmp_path / "missing.pem", tmp_path):
        with pytest.raises(SettingsInvalid, match=f"xmpp_ca_file: {ca_file} is not a PEM file"):
            upload_client(ca_file=ca_file)
