"""The vault, which encrypts credentials of feeds with a key that only Coronet's processes have (Fernet).

A sealed credential can be opened only for the origin for which it was sealed. Therefore nobody who can write to Redis,
but does not have the key, can have it sent elsewhere.
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

NO_KEY: Final = "There is no key for logins of feeds (setting credentials_key)."
_UNREADABLE: Final = "Its stored login cannot be decrypted, because the key (setting credentials_key) is another one."


class _Content(msgspec.Struct, frozen=True):
    """The content of a sealed credential; ``origin`` is the only origin to which it may be sent."""

    origin: str
    header: str
    value: str


class CredentialVault:
    """Seals and opens credentials with the keys in the settings: the first one seals, and all of them open."""

    def __init__(self, settings: Settings) -> None:
        # A key is a random text of any form; Fernet needs 32 bytes.
        digests = [sha256(key.encode()).digest() for key in settings.credentials_key.get_secret_value().split()]
        self._keys = [Fernet(urlsafe_b64encode(digest)) for digest in digests]

    @property
    def has_key(self) -> bool:
        """Whether there is a key. Without one, nothing can be sealed or opened."""
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
        """Return the sealed credential. Raises :class:`CredentialUnreadable` if it is not for the origin of ``url``."""
        content = msgspec.json.decode(self.open_text(sealed), type=_Content)
        if content.origin != origin_of(url):
            raise CredentialUnreadable(_UNREADABLE)
        return Credential(content.header, content.value)

    def open_text(self, sealed: str) -> bytes:
        """Return the sealed text. Raises :class:`CredentialUnreadable` if it was not sealed with one of the keys."""
        if not self._keys:
            raise CredentialUnreadable(NO_KEY)
        try:
            return MultiFernet(self._keys).decrypt(sealed)
        except InvalidToken as error:
            raise CredentialUnreadable(_UNREADABLE) from error

    def renewed(self, sealed: str) -> str:
        """Return ``sealed``, which can be opened, or the same content sealed with the first key if it was not."""
        try:
            self._keys[0].decrypt(sealed)
        except InvalidToken:
            return MultiFernet(self._keys).rotate(sealed).decode()
        return sealed
