"""The vault, which encrypts credentials of feeds with a key that only Coronet's processes have (Fernet).

A sealed credential can be opened only for the origin for which it was sealed. Someone who can write to Redis but does
not have the key can therefore not have it sent elsewhere.
"""

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Final

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from service.errors import CredentialUnreadable, UserError
from service.feeds.canonical_urls import origin_of
from service.feeds.credentials import Credential
from service.settings import Settings

NO_KEY: Final = "The operators have not set up a key for logins (setting credentials_key)."
_WRONG_KEY: Final = "The stored login cannot be decrypted: it was encrypted with another key (setting credentials_key)."


class _Content(msgspec.Struct, frozen=True):
    """The content of a sealed credential; ``origin`` is the only origin to which it may be sent."""

    origin: str
    header: str
    value: str


class CredentialVault:
    """Seals and opens credentials. Without a key, it can do neither."""

    def __init__(self, settings: Settings) -> None:
        """Create a vault with the keys in ``settings``: the first one seals, and all of them open."""
        # A key is a random text of any form; Fernet needs 32 bytes.
        digests = [sha256(key.encode()).digest() for key in settings.credentials_key.get_secret_value().split()]
        self._keys = [Fernet(urlsafe_b64encode(digest)) for digest in digests]

    @property
    def has_key(self) -> bool:
        """Whether there is a key."""
        return bool(self._keys)

    def seal(self, credential: Credential, url: str) -> str:
        """Return the sealed ``credential`` for the origin of ``url``. Raises :class:`UserError` if there is no key."""
        return self.seal_text(msgspec.json.encode(_Content(origin_of(url), credential.header, credential.value)))

    def seal_text(self, text: bytes) -> str:
        """Return the sealed ``text``. Raises :class:`UserError` if there is no key."""
        if not self._keys:
            raise UserError(NO_KEY)
        return self._keys[0].encrypt(text).decode()

    def open(self, sealed: str, url: str) -> Credential:
        """Return the credential in ``sealed``.

        Raises :class:`CredentialUnreadable` if it was sealed with another key, or for another origin than that of
        ``url``.
        """
        content = msgspec.json.decode(self.open_text(sealed), type=_Content)
        if content.origin != origin_of(url):
            raise CredentialUnreadable("The stored login belongs to another site. Send it again.")
        return Credential(content.header, content.value)

    def open_text(self, sealed: str) -> bytes:
        """Return the text in ``sealed``. Raises :class:`CredentialUnreadable` if it was sealed with another key."""
        if not self._keys:
            raise CredentialUnreadable(NO_KEY)
        try:
            return MultiFernet(self._keys).decrypt(sealed)
        except InvalidToken as error:
            raise CredentialUnreadable(_WRONG_KEY) from error

    def renewed(self, sealed: str) -> str:
        """Return ``sealed`` if it was sealed with the first key; otherwise, the same content sealed with that key."""
        try:
            self._keys[0].decrypt(sealed)
        except InvalidToken:
            return MultiFernet(self._keys).rotate(sealed).decode()
        return sealed
