"""A thousand online users in one process: minimal XMPP clients that only count messages.

``python receivers.py HOST PORT PASSWORD RECEIPTS USER…`` logs all users in, prints ``ready``, and then a line
``COUNT MONOTONIC_S`` each time as many messages as users have arrived. With RECEIPTS 1, clients send receipts
(XEP-0184).
"""

import asyncio
import base64
import re
import ssl
import sys
import time

_LOGINS_AT_ONCE = 20
_MESSAGE = re.compile(rb"<message\b[^>]*>.*?</message>", re.DOTALL)
_ID = re.compile(rb"\bid='([^']*)'")
_FROM = re.compile(rb"\bfrom='([^']*)'")


class Receivers:
    """All clients, and their total number of messages."""

    def __init__(self, host: str, port: int, password: str, *, receipts: bool, users: list[str]) -> None:
        self._address = (host, port)
        self._password = password
        self._receipts = receipts
        self._users = users
        self._count = 0
        self._gate = asyncio.Semaphore(_LOGINS_AT_ONCE)
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE  # the private server's certificate is its own

    async def run(self) -> None:
        """Log in all users, then count messages until the process ends."""
        streams = await asyncio.gather(*map(self._login, self._users))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.gather(*(self._read(user, *stream) for user, stream in zip(self._users, streams, strict=True)))

    async def _login(self, user: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        header = b"<stream:stream to='localhost' xmlns='jabber:client' "
        header += b"xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>"
        secret = base64.b64encode(f"\0{user}\0{self._password}".encode())
        async with self._gate:
            reader, writer = await asyncio.open_connection(*self._address)
            writer.write(header + b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>")
            await reader.readuntil(b"<proceed")
            await reader.readuntil(b">")
            await writer.start_tls(self._tls)
            writer.write(header)
            await reader.readuntil(b"</stream:features>")
            writer.write(b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>" + secret + b"</auth>")
            await reader.readuntil(b"<success")
            writer.write(header)
            await reader.readuntil(b"</stream:features>")
            writer.write(b"<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq><presence/>")
            await reader.readuntil(b"</presence>")
        return reader, writer

    async def _read(self, user: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pending = b""
        while data := await reader.read(65_536):
            pending += data
            for message in _MESSAGE.findall(pending):
                self.on_message(user, message)
                if self._receipts and (sender := _FROM.search(message)) and (ident := _ID.search(message)):
                    receipt = b"<received xmlns='urn:xmpp:receipts' id='" + ident[1] + b"'/>"
                    writer.write(b"<message type='chat' to='" + sender[1] + b"'>" + receipt + b"</message>")
            pending = pending.rpartition(b"</message>")[2]

    def on_message(self, _user: str, _message: bytes) -> None:
        """Count a message of a user."""
        self._count += 1
        if self._count % len(self._users) == 0:
            sys.stdout.write(f"{self._count} {time.monotonic()!r}\n")
            sys.stdout.flush()


def main() -> None:
    """Run as described in the module's docstring."""
    host, port, password, receipts, *users = sys.argv[1:]
    asyncio.run(Receivers(host, int(port), password, receipts=receipts == "1", users=users).run())


if __name__ == "__main__":
    main()
