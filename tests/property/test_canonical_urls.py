"""Properties of canonical URLs, for any text."""

import contextlib

from hypothesis import example, given
from hypothesis import strategies as st

from service.errors import BadUrl
from service.feeds.canonical_urls import (
    canonical_url,
    looks_like_url,
    page_url,
    redirect_target,
    selector_of,
    web_link,
    without_selector,
)

_PIECES = st.sampled_from(
    [
        *("http", "https", "feed", ":", "//", "/", "@", "\\", "?", "#", "&", "=", ".", "[", "]", "%", "%00", ":80"),
        *("0x7f", "1", "255", "example", ".com", "localhost", "utm_source=x", "ü", "::1", "xn--"),
        *("\u4f8b\u3048", "\uff11\uff12\uff17", "\u200b", "\x00", " "),
    ]
)
_URLISH = st.one_of(st.text(max_size=60), st.lists(_PIECES, max_size=12).map("".join))


@given(_URLISH)
@example("feed:feed:example.com")
@example("//example.com?&&")
def test_canonical_url_is_idempotent(text: str) -> None:
    with contextlib.suppress(BadUrl):
        canonical = canonical_url(text)
        assert canonical_url(canonical) == canonical
        assert canonical.isascii()
        assert canonical.startswith(("http://", "https://"))
        assert "@" not in canonical.split("/")[2]


@given(st.text("aZ0-.%~_@[]^/x", max_size=40), st.text("az0-.", max_size=70))
@example("", "127.0.0.1")
@example("", "1.2.3.4a")
@example("", f"{'a' * 64}.com")
@example("", ".".join(["a"] * 128))
def test_surrounding_white_space_is_ignored(path: str, host: str) -> None:
    for url in (f"https://{host}", f"https://{host}/{path}"):
        assert _canonical_or_none(url) == _canonical_or_none(f" {url} ")


def _canonical_or_none(text: str) -> str | None:
    try:
        return canonical_url(text)
    except BadUrl:
        return None


@given(_URLISH, _URLISH)
def test_only_bad_url_is_raised(text: str, other: str) -> None:
    looks_like_url(text)
    assert web_link(text) == "" or web_link(text).startswith("http")
    with contextlib.suppress(BadUrl):
        redirect_target("https://example.com/" + other, text)


@given(st.text(max_size=220))
def test_a_selector_round_trips_through_its_url(selector: str) -> None:
    with contextlib.suppress(BadUrl):
        channel_url = page_url("https://example.com/a?b=1", selector)
        assert channel_url.isascii()
        assert selector_of(channel_url) == " ".join(selector.split())
        assert without_selector(channel_url) == canonical_url(channel_url) == "https://example.com/a?b=1"
