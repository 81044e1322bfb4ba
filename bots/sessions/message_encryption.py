"""Messages and ad-hoc commands with credentials, in the form in which they are stored until they are answered.

Their credentials are encrypted. Without a key, they are left out, because they cannot be used either.
"""

from typing import Final

import msgspec

from bots.xmpp.events import AdhocCommandReceived, MessageReceived
from service.errors import CredentialUnreadable
from service.feeds.credentials import mask_credentials
from service.net.credential_vault import CredentialVault

CREDENTIAL_FIELD: Final = "credential"
"""Name of the field of a form (XEP-0004) that contains a credential."""


def encode_message(message: MessageReceived, vault: CredentialVault) -> bytes:
    """Return the message as it is stored."""
    masked = mask_credentials(message.text)
    sealed = vault.seal_text(message.text.encode()) if masked != message.text and vault.has_key else ""
    return msgspec.msgpack.encode(msgspec.structs.replace(message, text=masked, sealed_text=sealed))


def decode_message(payload: bytes, vault: CredentialVault) -> MessageReceived:
    """Return the stored message. If its text cannot be decrypted, it lacks the credential."""
    message = msgspec.msgpack.decode(payload, type=MessageReceived)
    if not message.sealed_text:
        return message
    return msgspec.structs.replace(message, text=_open(message.sealed_text, vault) or message.text, sealed_text="")


def encode_command(command: AdhocCommandReceived, vault: CredentialVault) -> bytes:
    """Return an ad-hoc command as it is passed to another process."""
    if credential := "".join(command.values.get(CREDENTIAL_FIELD, ())):
        command = _with_credential(command, vault.seal_text(credential.encode()) if vault.has_key else "")
    return msgspec.msgpack.encode(command)


def decode_command(payload: bytes, vault: CredentialVault) -> AdhocCommandReceived:
    """Return the ad-hoc command that another process has passed on."""
    command = msgspec.msgpack.decode(payload, type=AdhocCommandReceived)
    sealed = "".join(command.values.get(CREDENTIAL_FIELD, ()))
    return _with_credential(command, _open(sealed, vault)) if sealed else command


def _with_credential(command: AdhocCommandReceived, credential: str) -> AdhocCommandReceived:
    return msgspec.structs.replace(command, values={**command.values, CREDENTIAL_FIELD: (credential,)})


def _open(sealed: str, vault: CredentialVault) -> str:
    try:
        return vault.open_text(sealed).decode()
    except CredentialUnreadable:
        return ""
