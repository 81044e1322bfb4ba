"""The client's messages of a SASL login with a password: SCRAM (RFC 5802, RFC 7677) or PLAIN (RFC 4616)."""

import base64
import hashlib
import hmac
import secrets
import unicodedata
from collections.abc import Container
from typing import Final

from service.errors import OperationalError

_SCRAM_HASHES: Final = {"SCRAM-SHA-512": "sha512", "SCRAM-SHA-256": "sha256", "SCRAM-SHA-1": "sha1"}
_GS2_HEADER: Final = "n,,"
"""No channel binding, and no other identity than the user's."""


class SaslLogin:
    """One attempt to log in, with the strongest mechanism that both sides know.

    ``mechanism`` is the name of the mechanism, and ``first_message`` is the message with which it begins.
    """

    def __init__(self, offered: Container[str], user: str, password: str) -> None:
        """Choose one of the mechanisms ``offered`` by the server.

        Raises :class:`OperationalError` if no mechanism is suitable.
        """
        # The SASLprep profile (RFC 4013) consists of this normalisation and of characters that it forbids.
        self._password = unicodedata.normalize("NFKC", password).encode()
        self.mechanism = next((each for each in (*_SCRAM_HASHES, "PLAIN") if each in offered), "")
        if not self.mechanism:
            raise OperationalError("the server offers no login with a password")
        quoted = user.replace("=", "=3D").replace(",", "=2C")
        self._nonce = secrets.token_hex(16)
        self._first_bare = f"n={quoted},r={self._nonce}"
        is_plain = self.mechanism == "PLAIN"
        self.first_message = (
            b"\0%b\0%b" % (user.encode(), self._password) if is_plain else f"{_GS2_HEADER}{self._first_bare}".encode()
        )

    def answer(self, challenge: bytes) -> bytes:
        """Return the answer to ``challenge``, the server's first message in a SCRAM login.

        The answer proves that the client knows the password. Raises :class:`OperationalError` if the challenge is
        invalid.
        """
        text = challenge.decode(errors="replace")
        fields = dict(field.split("=", 1) for field in text.split(",") if "=" in field)
        try:
            nonce, salt, iterations = fields["r"], base64.b64decode(fields["s"]), int(fields["i"])
            digest = _SCRAM_HASHES[self.mechanism]
            salted = hashlib.pbkdf2_hmac(digest, self._password, salt, iterations)
        except (KeyError, ValueError, OverflowError):
            raise OperationalError("the server's SASL challenge is invalid") from None
        if not nonce.startswith(self._nonce):
            raise OperationalError("the server's SASL challenge answers another login")
        final_bare = f"c={base64.b64encode(_GS2_HEADER.encode()).decode()},r={nonce}"
        client_key = hmac.digest(salted, b"Client Key", digest)
        stored_key = hashlib.new(digest, client_key).digest()
        signature = hmac.digest(stored_key, f"{self._first_bare},{text},{final_bare}".encode(), digest)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        return f"{final_bare},p={base64.b64encode(proof).decode()}".encode()
