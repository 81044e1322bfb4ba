"""Visibility of channels: URLs that may be secret are never shown to others."""

import base64
import random
import string
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.discovery.channel_visibility import is_public, looks_secret
from service.model import Channel

_PLAIN = """
https://www.heise.de/rss/heise-atom.xml
https://www.youtube.com/feeds/videos.xml?channel_id=UCXuqSBlHAE6Xw-yeJA0Tunw
https://feeds.bbci.co.uk/news/world/rss.xml
https://example.org/2024/05/17/how-i-built-this-10-tips-for-2024.html
https://github.com/python/cpython/releases.atom
https://rss.nytimes.com/services/xml/rss/nyt/HomePage.xml
https://planet.debian.org/rss20.xml
https://mastodon.social/@Gargron.rss
https://hnrss.org/newest?points=100&q=python
https://www.tagesschau.de/infoservices/alle-meldungen-100~rss2.xml
https://feeds.megaphone.fm/GLT1412515089
https://bundesverfassungsgericht.de/rechtsprechungsuebersicht/rss
https://medium.com/feed/@netflixtechblog
https://nvd.nist.gov/feeds/xml/cve/misc/nvd-rss-analyzed.xml
https://stackoverflow.com/feeds/tag?tagnames=python&sort=newest
https://packages.example.org/rss/project/apscheduler/releases.xml
https://example.org/page#div:nth-of-type(2)
http://127.0.0.1:43123/feeds/plain
"""

_SECRET = """
https://user:word@example.org/feed
https://github.com/me.private.atom?token=ABCD
https://gitlab.com/x.atom?feed_token=abc
https://example.org/feed?key=abc
https://example.org/feed?user=me
https://example.org/feed?apiKey=1
https://example.org/feed?x&X-Amz-Signature=1
https://example.org/feed;jsessionid=12ab
https://example.org/me@example.com/rss
https://example.org/feed?to=me%40example.com
https://example.org/feed/550e8400-e29b-41d4-a716-446655440000
https://e3b0c44298fc1c14.example.org/feed
https://example.org/cal/%65%33%62%30c44298fc1c149afbf4c8996fb9/basic.ics
"""
PLAIN, SECRET = _PLAIN.split(), _SECRET.split()


@pytest.mark.parametrize("url", PLAIN)
def test_public_urls_do_not_look_secret(url: str) -> None:
    assert not looks_secret(url)


@pytest.mark.parametrize("url", SECRET)
def test_urls_with_credentials_look_secret(url: str) -> None:
    assert looks_secret(url)


def tokens(random_source: random.Random) -> dict[str, str]:
    raw = random_source.randbytes(16)
    return {
        "base64url": base64.urlsafe_b64encode(raw).decode().rstrip("="),
        "hexadecimal": raw.hex(),
        "short hexadecimal": raw[:8].hex(),
        "base32": base64.b32encode(raw).decode().rstrip("=").lower(),
        "uuid": str(uuid.UUID(bytes=raw)),
        "letters and digits": "".join(random_source.choices(string.ascii_letters + string.digits, k=16)),
        "small letters": "".join(random_source.choices(string.ascii_lowercase, k=24)),
        "digits": "".join(random_source.choices(string.digits, k=20)),
    }


@pytest.mark.parametrize("place", ["https://e.org/feed/{}/rss.xml", "https://e.org/{}.xml", "https://e.org/f?x={}"])
def test_hardly_any_random_token_looks_like_words(place: str) -> None:
    random_source = random.Random(7)  # noqa: S311 - the same tokens each time
    rounds = [tokens(random_source) for _ in range(500)]
    missed = {kind: sum(not looks_secret(place.format(each[kind])) for each in rounds) / 500 for kind in rounds[0]}
    assert max(missed.values()) <= 0.015, missed


_PARTS = st.sampled_from(["feed", "index.xml", "rechtsprechungsuebersicht", "a1b2c3d4e5f6", "~x", "-", ""]) | st.text(
    string.ascii_letters + string.digits + "._~-", max_size=40
)


@given(st.lists(_PARTS, min_size=1, max_size=3), st.lists(_PARTS, max_size=4))
def test_an_empty_query_does_not_change_whether_a_url_looks_secret(labels: list[str], segments: list[str]) -> None:
    # Only URLs without "?" are judged without being parsed.
    url = "/".join(["https:/", ".".join(labels).lower().replace("_", "").replace("~", ""), *segments])
    assert looks_secret(url) is looks_secret(f"{url}?")


def test_a_channel_is_public_if_it_is_listed_or_popular_and_never_with_a_secret() -> None:
    plain, secret = PLAIN[0], SECRET[1]
    assert not is_public(Channel("", plain), 2, 3)
    assert is_public(Channel("", plain), 3, 3)
    assert is_public(Channel("", plain, listed=True), 0, 3)
    assert not is_public(Channel("", secret, listed=True), 1000, 3)


@pytest.mark.parametrize("url", ["http://192.168.1.7/feed", "https://nas.example.org/feed", "http://[fd12::7]/feed"])
def test_a_channel_in_a_private_network_is_never_public(url: str) -> None:
    assert not is_public(Channel("", url, private=True, listed=True), 1000, 3)


def test_a_channel_of_a_trial_on_loopback_can_be_public() -> None:
    assert is_public(Channel("", "http://127.0.0.1:8081/feed", private=True), 3, 3)
