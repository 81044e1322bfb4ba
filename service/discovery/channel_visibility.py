"""Visibility of channels: whether people who are not subscribed to a channel may find and see it.

A URL can be a secret that grants access. A channel whose URL appears to contain a secret is therefore never listed in
the search directory, even if it has many subscribers or an admin has listed it. Hiding a public channel does little
harm, but showing a private one can do much (guarantee I10 in docs/guarantees.md).
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from operator import add
from typing import Final
from urllib.parse import unquote, urlsplit

from service.feeds.canonical_urls import host_of, is_loopback, reader_of, without_selector
from service.model import Channel, ChannelId

_KEY_NAMES: Final = re.compile(
    r"(?:^|[^a-z])(?:access|api_?key|auth\w*|bearer|code|credential\w*|hash|hmac|jwt|key|login|member|o?auth|pass\w*|"
    r"pin|private|pw|pwd|secret|j?session\w*|sid|sig|sign\w*|ticket|token|user|username|uid|uuid)(?:[^a-z]|$)"
)
# Parameters whose values look like tokens but are public on their sites.
_PUBLIC_NAMES: Final = frozenset({"channel_id", "playlist_id"})
# A URL without user name, port, query, and percent-encoding; its host name and its path.
_PLAIN_URL = re.compile(r"https?://([a-z0-9.-]+)((?:/[A-Za-z0-9._~-]*)*)")
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE)
_HEX = re.compile(r"(?=.*[0-9].*[0-9])(?=.*[a-f])[0-9a-f]{12,}", re.IGNORECASE)
_MAILBOX = re.compile(r"[^@]@[^@]")
_EXTENSION = re.compile(r"(?:\.(?:xml|rss|atom|json|rdf|html?|php|aspx?|cgi))+$", re.IGNORECASE)
_PARTS = re.compile(r"[^A-Za-z0-9]+")
_CHUNK = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
# Each first letter with the letters that often follow it in European languages: 19 of 20 letter pairs within words are
# among these, 7 of 20 in random text.
_FOLLOWERS: Final = (
    "abcdgiklmnprstuvy baeilorsu cacehiklorstu dadeiorsuy eacdefgilmnpqrstvwxy faefiloru gaehinorsu haeiortu "
    "iabcdefglmnoprstvz jaou keinos ladeilostuvy mabeimopsu nacdefgiknostu oabcdfgilmnoprstuvw paehiloprstu qu "
    "racdefgiklmnorstuvy sacehiklopstuy tacehilorstuyz uabcdegilmnprst vaeio waehios xp yes zeiu"
)
_USUAL_PAIRS: Final = frozenset(each[0] + second for each in _FOLLOWERS.split() for second in each[1:])

_MIN_TOKEN_CHARS = 12
_MIN_UUID_CHARS = 32
_MIN_CHUNK_CHARS = 3.0
"""Minimum mean length, in characters, of the runs of letters or digits in a text that a person wrote.

A text with shorter runs counts as a random token. The mean length is 1.6 in random letters and digits, and 5 in names.
"""
_MAX_NUMBER_DIGITS = 14
_MIN_USUAL_SHARE = 0.65
_MAX_INCONCLUSIVE_PAIRS = 3
_MAX_QUERY_VALUE_CHARS = 200
_CACHED_URLS = 20_000
_CACHED_TEXTS = 2_000


def is_public(channel: Channel, subscribers: int, min_subscribers: int) -> bool:
    """Return whether people who are not subscribed to a channel may find and see it.

    All of these conditions must hold:

    - An admin has listed the channel, or its number of ``subscribers`` is at least ``min_subscribers``.
    - Its URL does not look like a secret.
    - Its host is not in a private network (setting ``allowed_networks``).
    - It is not protected.
    """
    if reader_of(channel.url):
        return False
    # Loopback addresses are accepted, because only trials can have channels there.
    is_internal = channel.private and not is_loopback(host_of(channel.url))
    return (channel.listed or subscribers >= min_subscribers) and not is_internal and not looks_secret(channel.url)


def public_channels(
    channels: Iterable[Channel | None], counts: Iterable[int], min_subscribers: int
) -> dict[ChannelId, Channel]:
    """Return the public channels in ``channels``, keyed by id; :func:`is_public` states the conditions.

    ``counts`` contains the number of subscribers of each element of ``channels``, in the same order. Channels that have
    moved are left out. An element is None if the channel does not exist.
    """
    return {
        channel.id: channel
        for channel, count in zip(channels, counts, strict=True)
        if channel is not None and not channel.moved_to and is_public(channel, count, min_subscribers)
    }


@lru_cache(_CACHED_URLS)
def looks_secret(url: str) -> bool:
    """Return whether a canonical URL appears to contain a secret.

    A user name counts as a secret, and so does an access token in the host name, the path or the query.
    """
    # Most URLs are plain, and need not be parsed. Their short parts are no tokens.
    plain = _PLAIN_URL.fullmatch(url)
    if plain is None:
        return _has_secret_part(url)
    labels = [label for label in plain[1].split(".") if len(label) >= _MIN_TOKEN_CHARS]
    segments = [segment for segment in plain[2].split("/") if len(segment) >= _MIN_TOKEN_CHARS]
    return any(map(_is_token, labels)) or any(map(_segment_is_secret, segments))


def _has_secret_part(url: str) -> bool:
    parts = urlsplit(without_selector(url))
    if "@" in parts.netloc or any(_is_token(label) for label in (parts.hostname or "").split(".")):
        return True
    # Path parameters (``;jsessionid=…``) and assignments within a segment are treated like query parameters.
    segments = [unquote(segment) for segment in re.split(r"[/;]", parts.path)]
    fields = [*(unquote(field.replace("+", " ")) for field in re.split(r"[&;]", parts.query))]
    return any(_segment_is_secret(segment) for segment in segments) or any(_field_is_secret(field) for field in fields)


def _segment_is_secret(segment: str) -> bool:
    name, assigned, value = segment.partition("=")
    return _field_is_secret(segment) if assigned and value else _is_token(_EXTENSION.sub("", name))


def _field_is_secret(field: str) -> bool:
    name, _, value = field.partition("=")
    if not value:
        return _is_token(name)
    if name.lower() in _PUBLIC_NAMES:
        return False
    named = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
    return (
        bool(_KEY_NAMES.search(named)) or len(value) > _MAX_QUERY_VALUE_CHARS or any(map(_is_token, value.split("/")))
    )


@lru_cache(_CACHED_TEXTS)
def _is_token(text: str) -> bool:
    """Return whether a text looks like a random access token or a mail address, rather than like ordinary words."""
    if len(text) < _MIN_TOKEN_CHARS and "@" not in text:
        return False
    if (len(text) >= _MIN_UUID_CHARS and _UUID.search(text)) or ("@" in text and _MAILBOX.search(text)):
        return True
    parts = [part for part in _PARTS.split(text) if part]
    # A token may itself contain dashes and underscores; slugs have words between them.
    length = sum(map(len, parts))
    if length >= _MIN_TOKEN_CHARS + len(parts):
        chunks = sum(len(_CHUNK.findall(part)) for part in parts)
        if length < (_MIN_CHUNK_CHARS - 0.5) * chunks:
            return True
    return any(_is_random_part(part) for part in parts)


def _is_random_part(part: str) -> bool:
    if part.isdigit():
        return len(part) > _MAX_NUMBER_DIGITS
    if len(part) < _MIN_TOKEN_CHARS:
        return False
    chunks = _CHUNK.findall(part)
    if len(part) < _MIN_CHUNK_CHARS * len(chunks) or _HEX.fullmatch(part):
        return True
    letters = [chunk.lower() for chunk in chunks if chunk.isalpha()]
    pairs = [pair for chunk in letters for pair in map(add, chunk, chunk[1:])]
    return len(pairs) > _MAX_INCONCLUSIVE_PAIRS and sum(map(_USUAL_PAIRS.__contains__, pairs)) < _MIN_USUAL_SHARE * len(
        pairs
    )
