"""Credentials of feeds that want a login: what people type, and the request header that is sent.

A credential is written after the URL of a feed, in one of these forms:

- ``login NAME PASSWORD``: HTTP Basic authentication (RFC 7617)
- ``token TOKEN``: a bearer token (RFC 6750)
- ``cookie NAME=VALUE``: one or more cookies, separated by semicolons
- ``header NAME: VALUE``: any other request header, such as an API key
"""

import re
from base64 import b64encode
from itertools import islice
from typing import Final

import msgspec

from service.feeds.canonical_urls import MAX_URL_CHARS, is_selector_with_kind, looks_like_url

_MAX_VALUE_CHARS: Final = 4_000
_QUOTES: Final = "\"“”„'"
_WORDS: Final = re.compile(r"(?<!\S)(?:login|token|cookie|header)\s+(?=\S)", re.IGNORECASE)
_NUMBER: Final = re.compile(r"#[0-9]{1,6}")
_MAX_WORDS_BEFORE: Final = 8
"""Number of words in which a URL or the number of a subscription is looked for."""
_USERINFO: Final = re.compile(r"(?<=://)[^\s/@]+@")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HEADER_VALUE: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?")
# Headers that the fetcher sets, that frame the request, choose its target or claim its origin, or that open clouds'
# metadata services.
_REFUSED_NAMES: Final = re.compile(
    r"(?:host|connection|keep-alive|t(?:e|railer)|upgrade|expect|range|via|forwarded|user-agent|transfer-encoding|a-im|"
    r"metadata.*|(?:proxy|if|content|accept|sec|x-forwarded|x-real|x-aws)(?:-.*)?)",
    re.IGNORECASE,
)


class Credential(msgspec.Struct, frozen=True):
    """A credential as the request header that is sent. Both fields are "" if what was typed is not usable."""

    header: str = ""
    value: str = ""

    def __repr__(self) -> str:
        """Return a text without the secret, because representations can get into logs."""
        return f"Credential({self.header!r})"


_UNUSABLE: Final = Credential()


def parse_credential(words: str) -> Credential | None:
    """Return the credential in ``words``, the text after a URL; None if it is something else, such as a selector.

    If the credential is incomplete, cannot be sent in a header, or comes after other words, the fields of the result
    are "".
    """
    if not is_selector_with_kind(words):
        for found in _WORDS.finditer(words):
            credential = _parse(words[found.start() :])
            if credential is not None:
                return credential if not words[: found.start()].strip() else _UNUSABLE
    return None


def mask_credentials(text: str) -> str:
    """Return ``text``, which a person has typed, without the credentials in it.

    A credential is everything that follows a word such as `login` after a URL or the number of a subscription; also a
    user name and password in a URL.
    """
    for word in islice(re.finditer(r"\S+", text), _MAX_WORDS_BEFORE):
        subject = word[0][:MAX_URL_CHARS].strip("<>\"'`,;")
        if looks_like_url(subject) or _NUMBER.fullmatch(subject):
            found = _WORDS.search(text, word.end())
            text = f"{text[: found.end()]}…" if found is not None else text
            break
    return _USERINFO.sub("…@", text)


def _parse(words: str) -> Credential | None:
    """Return the credential in ``words``, which begin with the word `login` or the like."""
    kind, text = (*words.split(maxsplit=1), "", "")[:2]
    text = text.strip()
    is_quoted = len(text) > 1 and text[0] in _QUOTES and text[-1] in _QUOTES
    bare = text[1:-1].strip() if is_quoted else text
    match kind.lower():
        case "login":
            name, password = (*text.split(maxsplit=1), "", "")[:2]
            is_usable = bool(password) and ":" not in name and text.isprintable()
            encoded = b64encode(f"{name}:{password}".encode()).decode()
            return _checked("Authorization", f"Basic {encoded}" if is_usable else "")
        case "token":
            return _checked("Authorization", f"Bearer {bare}" if len(bare.split()) == 1 else "")
        case "cookie":
            return _checked("Cookie", bare if "=" in bare else "")
        case "header":
            name, colon, value = bare.partition(":")
            # `header a:hover` is a selector.
            is_header = bool(colon) and (is_quoted or value[:1] == " ") and _HEADER_NAME.fullmatch(name)
            return _checked(name, value.strip()) if is_header else None
    return None


def _checked(header: str, value: str) -> Credential:
    is_usable = (
        len(value) <= _MAX_VALUE_CHARS and _HEADER_VALUE.fullmatch(value) and not _REFUSED_NAMES.fullmatch(header)
    )
    return Credential(header, value) if is_usable else _UNUSABLE
