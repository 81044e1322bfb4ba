"""Messages between the bot and a user, and results of the account's archive (XEP-0313) that contain them."""

from xml.etree import ElementTree as ET

from bots.xmpp import archive

BOT, ALICE = "bot@localhost", "alice@localhost"


def parse(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - the tests wrote it


def archived(ident: str, message: str) -> ET.Element:
    return parse(
        f"<result xmlns='{archive.NS_MAM}' id='{ident}'><forwarded xmlns='urn:xmpp:forward:0'>"
        f"<delay xmlns='urn:xmpp:delay' stamp='2026-01-01T00:00:00Z'/>{message}</forwarded></result>"
    )


def message(content: str, sender: str = f"{ALICE}/phone", ident: str = "m1") -> str:
    return f"<message xmlns='jabber:client' from='{sender}' to='{BOT}' id='{ident}' type='chat'>{content}</message>"
