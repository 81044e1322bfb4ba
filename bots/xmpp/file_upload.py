"""File uploads through the XMPP server (XEP-0363)."""

import asyncio
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

import structlog

from bots.xmpp.interface import XmppClient, XmppSessionLost
from bots.xmpp.stanzas import error_condition
from service.errors import CoronetError, UploadRefused
from service.net.http_upload_client import HttpUploadClient as Files

UPLOAD_TIMEOUT_S: Final = 25.0
"""Time limit for a whole upload, including the discovery of the service, because a user is waiting."""
_DISCOVERY_TIMEOUT_S: Final = 5.0
_MAX_SERVICES: Final = 20
_MAX_SIZE_DIGITS: Final = 18
_UNLIMITED_BYTES: Final = 10**_MAX_SIZE_DIGITS
_NS_UPLOAD: Final = "urn:xmpp:http:upload:0"
_NS_DISCO_INFO: Final = "http://jabber.org/protocol/disco#info"
_NS_DISCO_ITEMS: Final = "http://jabber.org/protocol/disco#items"
_DATA: Final = "{jabber:x:data}"
_ALLOWED_HEADERS: Final = {"authorization": "Authorization", "cookie": "Cookie", "expires": "Expires"}
"""The only HTTP headers that the server may ask the bot to send with an upload (XEP-0363 §5)."""
_log = structlog.get_logger()


class FileUploader:
    """Uploads files to the bot's XMPP server, or to an upload service that the server lists in service discovery."""

    def __init__(self, xmpp: XmppClient, files: Files) -> None:
        """Create an uploader.

        ``xmpp`` sends the requests to the XMPP server, and the HTTP client ``files`` uploads the files.
        """
        self._xmpp = xmpp
        self.files = files

    async def share(self, name: str, body: bytes, media_type: str) -> str | None:
        """Upload a file and return its public URL, or None if no service accepts uploads.

        Raises :class:`UploadRefused` if the file is too large, if the service refuses it, if the upload takes too long,
        or if the XMPP session ends.
        """
        try:
            async with asyncio.timeout(UPLOAD_TIMEOUT_S):
                found = await self._find_service()
                if found is None:
                    return None
                service, max_bytes = found
                if len(body) > max_bytes:
                    raise UploadRefused(f"{service} takes files of up to {max_bytes:,} bytes.")
                attributes = f"filename={quoteattr(name)} size='{len(body)}' content-type={quoteattr(media_type)}"
                slot = await self._xmpp.request(service, "get", f"<request xmlns='{_NS_UPLOAD}' {attributes}/>")
                return await self._upload(service, slot, body, media_type)
        except TimeoutError:
            raise UploadRefused(f"The server was not done within {UPLOAD_TIMEOUT_S:g} s.") from None
        except XmppSessionLost as error:
            raise UploadRefused(str(error)) from error

    async def _upload(self, service: str, slot: Element, body: bytes, media_type: str) -> str:
        put, get = slot.find(f".//{{{_NS_UPLOAD}}}put"), slot.find(f".//{{{_NS_UPLOAD}}}get")
        if slot.get("type") == "error" or put is None or get is None:
            reason = slot.findtext(".//{urn:ietf:params:xml:ns:xmpp-stanzas}text") or error_condition(slot)
            raise UploadRefused(f"{service} says: {reason[:200]}.")
        headers = {"Content-Type": media_type}
        for header in put.iterfind(f"{{{_NS_UPLOAD}}}header"):
            if name := _ALLOWED_HEADERS.get(header.get("name", "").strip().lower()):
                headers[name] = "".join((header.text or "").splitlines())
        try:
            await self.files.write(put.get("url", ""), body, headers)
        except CoronetError as error:
            _log.warning("file upload failed", service=service, error=str(error))
            raise UploadRefused(str(error)) from error
        return get.get("url", "")

    async def _find_service(self) -> tuple[str, int] | None:
        """Return the JID and the size limit (bytes) of the first service that accepts uploads; None if there is none.

        The server itself takes precedence over the services that it lists.
        """
        domain = self._xmpp.address.rpartition("@")[2]
        server = domain if self._xmpp.is_account else domain.partition(".")[2]
        items = await self._query(server, _NS_DISCO_ITEMS)
        listed = [item.get("jid", "") for item in items.iter(f"{{{_NS_DISCO_ITEMS}}}item") if item.get("jid")]
        jids = [server, *listed[:_MAX_SERVICES]]
        infos = await asyncio.gather(*(self._query(jid, _NS_DISCO_INFO) for jid in jids))
        limits = zip(jids, map(parse_upload_limit, infos), strict=True)
        return next(((jid, max_bytes) for jid, max_bytes in limits if max_bytes is not None), None)

    async def _query(self, jid: str, namespace: str) -> Element:
        """Send a service discovery query and return the response; return an empty element if none arrives in time.

        ``namespace`` selects the kind of query: disco#info or disco#items.
        """
        try:
            async with asyncio.timeout(_DISCOVERY_TIMEOUT_S):
                return await self._xmpp.request(jid, "get", f"<query xmlns='{namespace}'/>")
        except TimeoutError:
            return Element("iq")


def parse_upload_limit(info: Element) -> int | None:
    """Return the size limit (bytes) from a disco#info response; None if the service does not accept uploads."""
    if not any(each.get("var") == _NS_UPLOAD for each in info.iter(f"{{{_NS_DISCO_INFO}}}feature")):
        return None
    for field in info.iter(f"{_DATA}field"):
        if field.get("var") == "max-file-size":
            value = (field.findtext(f"{_DATA}value") or "").strip()
            return int(value) if value.isdecimal() and len(value) < _MAX_SIZE_DIGITS else _UNLIMITED_BYTES
    return _UNLIMITED_BYTES
