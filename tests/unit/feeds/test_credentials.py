"""Credentials as people type them, the headers that follow from them, and texts from which they are removed."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.feeds.credentials import Credential, mask_credentials, parse_credential

UNUSABLE = Credential()


def basic(pair: str) -> Credential:
    return Credential("Authorization", f"Basic {b64encode(pair.encode()).decode()}")


@pytest.mark.parametrize(
    ("words", "credential"),
    [
        ("login alice secret", basic("alice:secret")),
        ("LOGIN alice correct  horse: battery", basic("alice:correct  horse: battery")),
        ("login älice schlüssel", basic("älice:schlüssel")),
        ("token abc.def", Credential("Authorization", "Bearer abc.def")),
        ("cookie session=1; theme=dark", Credential("Cookie", "session=1; theme=dark")),
        ('cookie "session=1"', Credential("Cookie", "session=1")),
        ('cookie session="1"', Credential("Cookie", 'session="1"')),
        ("header X-Api-Key: k 1", Credential("X-Api-Key", "k 1")),
        ('header "X-Api-Key:k"', Credential("X-Api-Key", "k")),
        ("header “Authorization: Custom k”", Credential("Authorization", "Custom k")),
    ],
)
def test_each_form_of_a_credential_becomes_a_header(words: str, credential: Credential) -> None:
    assert parse_credential(words) == credential


@pytest.mark.parametrize(
    "words",
    [
        "",
        "#list",
        "main table",
        "header h1",
        "header a:hover",
        "xpath=//p[.='please login to continue']",
        "login",
        "token",
    ],
)
def test_a_selector_is_no_credential(words: str) -> None:
    assert parse_credential(words) is None


@pytest.mark.parametrize(
    "words",
    [
        "login alice",
        "login a:b secret",
        "login alice se\ncret",
        "token two words",
        "token schlüssel",
        "cookie nothing",
        "cookie a=b\r\nX: y",
        f"token {'x' * 4_001}",
        "header X-Key: a\nHost: b",
        ".price login alice secret",
        "with mute=on login alice secret",
    ],
)
def test_a_credential_that_cannot_be_sent_is_recognised_as_unusable(words: str) -> None:
    assert parse_credential(words) == UNUSABLE


@pytest.mark.parametrize(
    "name",
    [
        *(
            "Host",
            "host",
            "Content-Length",
            "Transfer-Encoding",
            "Connection",
            "If-None-Match",
            "Proxy-Authorization",
        ),
        *("X-Forwarded-For", "User-Agent", "Accept", "Range", "A-IM", "Metadata-Flavor"),
    ],
)
def test_headers_that_frame_or_route_a_request_are_refused(name: str) -> None:
    assert parse_credential(f"header {name}: x") == UNUSABLE


@given(st.text(max_size=200), st.sampled_from(["login", "token", "cookie", "header"]))
def test_any_usable_credential_fits_into_one_header_line(text: str, kind: str) -> None:
    credential = parse_credential(f"{kind} {text}")
    assert credential is None or (credential.header + credential.value).isascii()
    assert credential is None or (credential.header + credential.value).isprintable()


def test_the_representation_of_a_credential_has_no_secret() -> None:
    assert "secret" not in repr(Credential("Cookie", "secret"))


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("subscribe example.org/feed login alice s3cret", "subscribe example.org/feed login …"),
        ("subskribe <https://example.org> token s3cret", "subskribe <https://example.org> token …"),
        ("https://example.org cookie a=s3cret\nmore s3cret", "https://example.org cookie …"),
        ("subscribe example.org .price login alice s3cret", "subscribe example.org .price login …"),
        ("set #3 login alice s3cret", "set #3 login …"),
        ("subscribe https://alice:s3cret@example.org/feed", "subscribe https://…@example.org/feed"),
        ("subscribe example.org header", "subscribe example.org header"),
        ("find how to login fast", "find how to login fast"),
        ("list", "list"),
    ],
)
def test_credentials_are_removed_from_texts(text: str, masked: str) -> None:
    assert mask_credentials(text) == masked


@given(st.text(max_size=300))
def test_masking_twice_is_masking_once(text: str) -> None:
    assert mask_credentials(mask_credentials(text)) == mask_credentials(text)
