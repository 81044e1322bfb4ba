"""The stored credentials of protected channels, which workers open at the moment of a request and do not keep."""

import structlog

from service.errors import CredentialUnreadable
from service.feeds.canonical_urls import channel_id
from service.feeds.credentials import Credential
from service.net.credential_vault import CredentialVault
from service.store.channels.credential_store import CredentialStore

log = structlog.get_logger(__name__)


class StoredCredentials:
    """Reads and opens the stored credentials of protected channels."""

    def __init__(self, store: CredentialStore, vault: CredentialVault) -> None:
        self._store = store
        self._vault = vault

    async def find(self, url: str) -> Credential:
        """Return the credential of the protected channel at ``url``.

        A credential that was sealed with an older key is stored again, sealed with the present one. Raises
        :class:`CredentialUnreadable` if there is no credential, or if it was sealed with an unknown key.
        """
        cid = channel_id(url)
        sealed = await self._store.get(cid)
        try:
            credential = self._vault.open(sealed, url)
        except CredentialUnreadable as error:
            log.warning("credential cannot be opened", channel=cid[:8], error=str(error))
            raise
        if (renewed := self._vault.renewed(sealed)) != sealed:
            await self._store.replace(cid, sealed, renewed)
        return credential
