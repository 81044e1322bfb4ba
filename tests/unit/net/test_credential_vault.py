"""Sealed credentials: which keys and which origins can open them."""

import pytest
from pydantic import SecretStr, ValidationError

from service.errors import CredentialUnreadable, UserError
from service.feeds.credentials import Credential
from service.net.credential_vault import CredentialVault
from service.settings import Settings

URL = "https://example.org/feed#login=reader"
SECRET = Credential("Authorization", "Bearer s3cret")
OLD, NEW = "an old key of at least 32 characters".replace(" ", "-"), "n" * 32


def vault(*keys: str) -> CredentialVault:
    return CredentialVault(Settings(credentials_key=SecretStr("\n".join(keys))))


def test_a_sealed_credential_has_no_secret_and_can_be_opened() -> None:
    sealed = vault(OLD).seal(SECRET, URL)
    assert "s3cret" not in sealed
    assert vault(OLD).open(sealed, "https://example.org/another/path") == SECRET


@pytest.mark.parametrize(
    "url", ["https://example.com/feed", "http://example.org/feed", "https://example.org:8443/feed", ""]
)
def test_a_credential_cannot_be_opened_for_another_origin(url: str) -> None:
    with pytest.raises(CredentialUnreadable):
        vault(OLD).open(vault(OLD).seal(SECRET, URL), url)


def test_an_older_key_still_opens_and_the_first_one_seals() -> None:
    both = vault(NEW, OLD)
    sealed = vault(OLD).seal(SECRET, URL)
    assert both.open(sealed, URL) == SECRET
    renewed = both.renewed(sealed)
    assert vault(NEW).open(renewed, URL) == SECRET
    assert both.renewed(renewed) == renewed


@pytest.mark.parametrize("sealed", ["", "gAAAAA", "nonsense", vault(NEW).seal(SECRET, URL)])
def test_what_another_key_has_sealed_is_reported(sealed: str) -> None:
    with pytest.raises(CredentialUnreadable, match="credentials_key"):
        vault(OLD).open(sealed, URL)


def test_without_a_key_nothing_is_sealed_or_opened() -> None:
    assert not vault().has_key
    with pytest.raises(UserError, match="credentials_key"):
        vault().seal(SECRET, URL)
    with pytest.raises(CredentialUnreadable, match="credentials_key"):
        vault().open(vault(OLD).seal(SECRET, URL), URL)


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValidationError, match="32 characters") as refused:
        Settings(credentials_key=SecretStr("x" * 31))
    assert "x" * 31 not in str(refused.value)
