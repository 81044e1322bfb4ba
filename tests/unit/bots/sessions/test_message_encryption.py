"""Messages and ad-hoc commands as they are stored: without credentials in clear text."""

import msgspec
import pytest
from pydantic import SecretStr

from bots.sessions.message_encryption import decode_command, decode_message, encode_command, encode_message
from bots.xmpp.events import AdhocCommandReceived, MessageReceived
from service.net.credential_vault import CredentialVault
from service.settings import Settings

VAULT = CredentialVault(Settings(credentials_key=SecretStr("k" * 32)))
OTHER = CredentialVault(Settings(credentials_key=SecretStr("o" * 32)))
NONE = CredentialVault(Settings())
MESSAGE = MessageReceived(
    "a@x", "a@x/y", "1", "subscribe example.org login alice s3cret", "", wants_receipt=False, dedup_key="d"
)
COMMAND = AdhocCommandReceived(
    "a@x", "a@x/y", "1", "subscribe", "execute", "s", {"url": ("example.org",), "credential": ("token s3cret",)}, ""
)


def test_a_message_with_a_credential_is_stored_sealed_and_read_unchanged() -> None:
    stored = encode_message(MESSAGE, VAULT)
    assert b"s3cret" not in stored
    assert decode_message(stored, VAULT) == MESSAGE


@pytest.mark.parametrize(("writer", "reader"), [(NONE, NONE), (NONE, VAULT), (VAULT, OTHER), (VAULT, NONE)])
def test_without_the_key_a_message_lacks_the_credential(writer: CredentialVault, reader: CredentialVault) -> None:
    stored = encode_message(MESSAGE, writer)
    assert b"s3cret" not in stored
    assert decode_message(stored, reader).text == "subscribe example.org login …"


@pytest.mark.parametrize("vault", [VAULT, NONE])
def test_other_messages_are_stored_as_they_are(vault: CredentialVault) -> None:
    other = msgspec.structs.replace(MESSAGE, text="find how to login")
    assert encode_message(other, vault) == msgspec.msgpack.encode(other)
    assert decode_message(msgspec.msgpack.encode(other), vault) == other


def test_a_command_is_passed_on_with_a_sealed_credential() -> None:
    passed = encode_command(COMMAND, VAULT)
    assert b"s3cret" not in passed
    assert decode_command(passed, VAULT) == COMMAND


@pytest.mark.parametrize(("writer", "reader"), [(NONE, VAULT), (VAULT, OTHER)])
def test_without_the_key_a_command_lacks_the_credential(writer: CredentialVault, reader: CredentialVault) -> None:
    passed = encode_command(COMMAND, writer)
    assert b"s3cret" not in passed
    assert "".join(decode_command(passed, reader).values["credential"]) == ""
