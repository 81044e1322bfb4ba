"""Files that we give people by way of our XMPP server (XEP-0363), if it takes any, and those that they give us."""

import asyncio
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import quoteattr

import structlog

from bots.xmpp.interface import XmppClient, XmppSessionLost
from bots.xmpp.stanzas import condition_of
from service.errors import CoronetError, UploadRefused
from service.net.upload_client import UploadClient as Files

WITHIN_S: Final = 25.0
"""From the wish to share a file until it is there: somebody waits."""
_ASKED_WITHIN_S: Final = 5.0
_MOST_SERVICES: Final = 20
_MOST_DIGITS: Final = 18
_ANY_SIZE: Final = 10**_MOST_DIGITS
_UPLOAD: Final = "urn:xmpp:http:upload:0"
_INFO: Final = "http://jabber.org/protocol/disco#info"
_ITEMS: Final = "http://jabber.org/protocol/disco#items"
_FORM: Final = "{jabber:x:data}"
_PASSED_ON: Final = {"authorization": "Authorization", "cookie": "Cookie", "expires": "Expires"}
"""The only headers that a server may want us to send (XEP-0363 §5)."""
_log = structlog.get_logger()


class Uploads:
    """Shares files through our server; ``files`` reads what lies there."""

    def __init__(self, link: XmppClient, files: Files) -> None:
        """Ask the server through ``link``; write and read ``files``."""
        self._link = link
        self.files = files

    async def share(self, name: str, body: bytes, media_type: str) -> str | None:
        """Put a file where everybody can read it who knows its URL, and return that; None if no server takes files.

        Raises :class:`UploadRefused`.
        """
        try:
            async with asyncio.timeout(WITHIN_S):
                found = await self._service()
                if found is None:
                    return None
                service, most_bytes = found
                if len(body) > most_bytes:
                    raise UploadRefused(f"{service} takes files of up to {most_bytes:,} bytes.")
                wanted = f"filename={quoteattr(name)} size='{len(body)}' content-type={quoteattr(media_type)}"
                slot = await self._link.request(service, "get", f"<request xmlns='{_UPLOAD}' {wanted}/>")
                return await self._written(service, slot, body, media_type)
        except TimeoutError:
            raise UploadRefused(f"The server was not done within {WITHIN_S:g} s.") from None
        except XmppSessionLost as error:
            raise UploadRefused(str(error)) from error

    async def _written(self, service: str, slot: Element, body: bytes, media_type: str) -> str:
        put, get = slot.find(f".//{{{_UPLOAD}}}put"), slot.find(f".//{{{_UPLOAD}}}get")
        if slot.get("type") == "error" or put is None or get is None:
            said = slot.findtext(".//{urn:ietf:params:xml:ns:xmpp-stanzas}text") or condition_of(slot)
            raise UploadRefused(f"{service} says: {said[:200]}.")
        headers = {"Content-Type": media_type}
        for header in put.iterfind(f"{{{_UPLOAD}}}header"):
            if known := _PASSED_ON.get(header.get("name", "").strip().lower()):
                headers[known] = "".join((header.text or "").splitlines())
        try:
            await self.files.write(put.get("url", ""), body, headers)
        except CoronetError as error:
            _log.warning("a file was not uploaded", service=service, error=str(error))
            raise UploadRefused(str(error)) from error
        return get.get("url", "")

    async def _service(self) -> tuple[str, int] | None:
        """Return who takes files, and of how many bytes at most: our server itself, or one of its services."""
        domain = self._link.address.rpartition("@")[2]
        server = domain if self._link.is_account else domain.partition(".")[2]
        items = await self._asked(server, _ITEMS)
        listed = [item.get("jid", "") for item in items.iter(f"{{{_ITEMS}}}item") if item.get("jid")]
        jids = [server, *listed[:_MOST_SERVICES]]
        found = zip(jids, map(takes, await asyncio.gather(*(self._asked(jid, _INFO) for jid in jids))), strict=True)
        return next(((jid, most_bytes) for jid, most_bytes in found if most_bytes is not None), None)

    async def _asked(self, jid: str, namespace: str) -> Element:
        """Return the answer, an empty one from who does not give any in time."""
        try:
            async with asyncio.timeout(_ASKED_WITHIN_S):
                return await self._link.request(jid, "get", f"<query xmlns='{namespace}'/>")
        except TimeoutError:
            return Element("iq")


def takes(info: Element) -> int | None:
    """Return of how many bytes a service takes files, as its answer to disco#info says; None if it takes none."""
    if not any(each.get("var") == _UPLOAD for each in info.iter(f"{{{_INFO}}}feature")):
        return None
    for field in info.iter(f"{_FORM}field"):
        if field.get("var") == "max-file-size":
            value = (field.findtext(f"{_FORM}value") or "").strip()
            return int(value) if value.isdecimal() and len(value) < _MOST_DIGITS else _ANY_SIZE
    return _ANY_SIZE
