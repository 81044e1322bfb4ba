"""The stored credentials of protected channels, which workers open at the moment of a request and do not keep."""

from service.feeds.canonical_urls import channel_id
from service.feeds.credentials import Credential
from service.net.credential_vault import CredentialVault
from service.store.channels.credential_store import CredentialStore


class CredentialReader:
    """Reads and opens the stored credentials of protected channels."""

    def __init__(self, store: CredentialStore, vault: CredentialVault) -> None:
        self._store = store
        self._vault = vault

    async def find(self, url: str) -> Credential:
        """Return the credential of the protected channel at ``url``; if its key is an old one, store it with the new.

        Raises :class:`service.errors.CredentialUnreadable` if there is no credential, or if its key is unknown.
        """
        cid = channel_id(url)
        sealed = await self._store.get(cid)
        credential = self._vault.open(sealed, url)
        if (renewed := self._vault.renewed(sealed)) != sealed:
            await self._store.put(cid, renewed, sealed)
        return credential
