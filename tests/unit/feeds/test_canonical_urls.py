"""Canonical URLs: one form for what people type, and errors for what parsers interpret differently."""

import pytest

from service.errors import BadUrl
from service.feeds.canonical_urls import (
    canonical_url,
    channel_id,
    https_variant,
    looks_like_url,
    origin_of,
    page_url,
    protected_url,
    reader_of,
    redirect_target,
    selector_of,
    shown_url,
    web_link,
    without_selector,
)


@pytest.mark.parametrize(
    ("typed", "canonical"),
    [
        ("example.com", "https://example.com/"),
        (" <https://example.com/feed> ", "https://example.com/feed"),
        ("HTTP://EXAMPLE.com:80/Feed", "http://example.com/Feed"),
        ("https://example.com:443", "https://example.com/"),
        ("https://example.com:8443/", "https://example.com:8443/"),
        ("feed://example.com/rss", "https://example.com/rss"),
        ("feed:http://example.com/rss", "http://example.com/rss"),
        ("//example.com/rss", "https://example.com/rss"),
        ("example.com:8080/rss", "https://example.com:8080/rss"),
        ("localhost:8080/rss", "https://localhost:8080/rss"),
        ("https://example.com/#top", "https://example.com/"),
        ("https://example.com/?", "https://example.com/"),
        ("https://example.com/a?utm_source=x&b=1&fbclid=y&UTM_medium=z", "https://example.com/a?b=1"),
        ("https://example.com./feed", "https://example.com/feed"),
        ("https://例え.jp/ü?q=ü", "https://xn--r8jz45g.jp/%C3%BC?q=%C3%BC"),
        ("https://example.com/a%2Fb/../c//d", "https://example.com/a%2Fb/../c//d"),
        ("http://[2001:DB8:0::1]:8080/", "http://[2001:db8::1]:8080/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://0177.0.0.01/", "http://127.0.0.1/"),
        ("http://127.1/", "http://127.0.0.1/"),
        ("http://0/", "http://0.0.0.0/"),
        ("http://１２７.０.０.１/", "http://127.0.0.1/"),  # noqa: RUF001 - full-width digits are the point
    ],
)
def test_typed_urls_become_canonical(typed: str, canonical: str) -> None:
    assert canonical_url(typed) == canonical


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        ("", "URL is missing"),
        ("hello", "not a full host name"),
        ("http://intranet/feed", "not a full host name"),
        ("https:///feed", "not the URL"),
        ("https://", "not the URL"),
        ("https://user:secret@example.com/", "user name or password"),
        ("https://good.example\\@evil.example/", "backslash"),
        ("https://good.example%00@evil.example/", "user name or password"),
        ("https://good.example%00.evil.example/", "not a host name"),
        ("https://example.com/a b", "white space"),
        ("https://example.com/\r\nX-Header: 1", "white space or an invisible character"),
        ("https://example.com/\x00", "invisible character"),
        ("https://exam\u200bple.com/", "invisible character"),
        ("https://example.com/\u202egpj.exe", "invisible character"),
        ("javascript:alert(1)", "isn't a web address"),
        ("file:///etc/passwd", "isn't a web address"),
        ("gopher://example.com/", "isn't a web address"),
        ("to", "“to” is not a full host name"),
        ("https://example.com/" + "x" * 2000, "longer than 2,000"),
        ("https://example.com/" + "ü" * 1000, "longer than 2,000"),
        ("x" * 20_000, "longer than 2,000"),
        ("https://example.com:99999/", "not a port"),
        ("https://example.com:0/", "not a port"),
        ("https://example.com:1:2/", "not a host"),
        ("https://a..b/", "not a host name"),
        ("https://-a.example/", "not a host name"),
        ("http://1.2.3.4.5/", "not a host name"),
        ("http://256.256.256.256/", "not an IPv4 address"),
        ("http://0x1ffffffff/", "not an IPv4 address"),
        ("http://09.1.1.1/", "not an IPv4 address"),
        ("http://[::1%25eth0]/", "not an IPv6 address"),
        ("http://[::zz]/", "not an IPv6 address"),
    ],
)
def test_invalid_urls_are_refused_with_a_reason(typed: str, reason: str) -> None:
    with pytest.raises(BadUrl, match=reason):
        canonical_url(typed)


def test_a_password_is_not_quoted() -> None:
    with pytest.raises(BadUrl) as caught:
        canonical_url("https://user:secret@example.com/")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["example.com", "<https://example.com>", "feed:x", "http://", "blog.example.com/feed?x=1", "例え.jp"]
)
def test_a_url_is_recognised_without_a_command(text: str) -> None:
    assert looks_like_url(text)


@pytest.mark.parametrize(
    "text", ["help", "help.", "list", "", "e.g.", "v1.2", "3.14", "#3", "hi example.com", "a@b.example"]
)
def test_words_and_numbers_are_not_recognised_as_urls(text: str) -> None:
    assert not looks_like_url(text)


def test_a_channel_id_is_forty_hex_digits_of_its_url() -> None:
    assert channel_id("https://example.com/") == "b559c7edd3fb67374c1a25e739cdd7edd1d79949"


def test_a_redirect_target_is_absolute_and_keeps_tracking_parameters() -> None:
    assert redirect_target("https://example.com/a/b", "../c?utm_source=x") == "https://example.com/c?utm_source=x"


@pytest.mark.parametrize("location", ["file:///etc/passwd", "gopher://x.example/", "http://[", "https://a.example/\\x"])
def test_a_redirect_to_an_invalid_url_is_refused(location: str) -> None:
    with pytest.raises(BadUrl):
        redirect_target("https://example.com/", location)


def test_an_entry_link_keeps_its_fragment() -> None:
    assert web_link("HTTPS://example.com/notes?utm_source=x#v1.2") == "https://example.com/notes#v1.2"


@pytest.mark.parametrize(
    "link", ["javascript:alert(1)", "/relative", "", "https://u:p@example.com/", "https://a.example/#\u202e"]
)
def test_a_harmful_entry_link_is_omitted(link: str) -> None:
    assert web_link(link) == ""


def test_a_part_of_a_page_is_a_separate_channel() -> None:
    part = page_url("HTTPS://example.com/shop?utm_source=x#top", " #prices \t td:nth-child(2) > b ")
    assert part == "https://example.com/shop#%23prices%20td:nth-child(2)%20%3E%20b"
    assert selector_of(part) == "#prices td:nth-child(2) > b"
    assert channel_id(part) != channel_id("https://example.com/shop")


def test_a_part_of_a_page_is_fetched_from_the_url_of_the_page() -> None:
    part = page_url("example.com/shop", "#prices")
    assert without_selector(part) == canonical_url(part) == "https://example.com/shop"


def test_an_empty_selector_is_the_whole_page() -> None:
    assert page_url("example.com", "  ") == "https://example.com/"
    assert selector_of("https://example.com/") == ""


@pytest.mark.parametrize(
    ("selector", "reason"),
    [("x" * 201, "longer than 200"), ("p\x00", "invisible character"), ("p\u202e", "invisible character")],
)
def test_an_invalid_selector_is_refused_with_a_reason(selector: str, reason: str) -> None:
    with pytest.raises(BadUrl, match=reason):
        page_url("example.com", selector)


@pytest.mark.parametrize(
    ("written", "selector"),
    [
        ("css=.price", ".price"),
        ("CSS = css=.price", ".price"),
        ('XPath= //a[@b="c d"]', 'xpath=//a[@b="c d"]'),
        ("json=$.items[*]['a b']", "json=$.items[*]['a b']"),
        ("css=", ""),
    ],
)
def test_a_selector_has_one_form_of_its_kind(written: str, selector: str) -> None:
    part = page_url("example.com/shop", written)
    assert selector_of(part) == selector
    assert page_url(without_selector(part), selector_of(part)) == part
    assert canonical_url(part) == "https://example.com/shop"


@pytest.mark.parametrize(
    ("url", "twin"),
    [
        ("http://example.org/feed?http=1", "https://example.org/feed?http=1"),
        ("http://[2606:4700::1111]/feed", "https://[2606:4700::1111]/feed"),
        ("https://example.org/feed", ""),
        ("http://example.org:8080/feed", ""),
    ],
)
def test_a_url_at_the_default_port_has_an_https_variant(url: str, twin: str) -> None:
    assert https_variant(url) == twin


def test_a_protected_url_names_its_reader_and_has_no_selector() -> None:
    url = protected_url("https://example.org/feed", "reader-1")
    assert (reader_of(url), selector_of(url), shown_url(url)) == ("reader-1", "", "https://example.org/feed")
    part = page_url("https://example.org/feed", "main")
    assert (reader_of(part), shown_url(part)) == ("", part)


@pytest.mark.parametrize("selector", ["login=reader", " css= login=reader"])
def test_nobody_can_type_a_protected_url(selector: str) -> None:
    with pytest.raises(BadUrl, match="is not a selector"):
        page_url("https://example.org/feed", selector)
    assert reader_of(canonical_url("https://example.org/feed#login=reader")) == ""


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://example.org/a/b?c=//d/e", "https://example.org"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
        ("https://example.org/#login=x", "https://example.org"),
    ],
)
def test_the_origin_of_a_url_is_scheme_host_and_port(url: str, origin: str) -> None:
    assert origin_of(url) == origin
