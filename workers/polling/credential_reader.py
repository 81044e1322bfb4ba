"""Reads the credentials of protected channels at the moment of a request, so that workers do not keep them."""

from service.feeds.canonical_urls import channel_id
from service.feeds.credentials import Credential
from service.net.credential_vault import CredentialVault
from service.store.channels.credential_store import CredentialStore


async def find_credential(store: CredentialStore, vault: CredentialVault, url: str) -> Credential:
    """Return the credential of the protected channel at ``url``; if its key is an old one, store it with the new one.

    Raises :class:`service.errors.CredentialUnreadable` if there is no credential, or if its key is unknown.
    """
    cid = channel_id(url)
    sealed = await store.get(cid)
    credential = vault.open(sealed, url)
    if (renewed := vault.renewed(sealed)) != sealed:
        await store.put(cid, renewed, sealed)
    return credential
