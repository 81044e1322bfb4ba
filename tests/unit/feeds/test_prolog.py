"""The first element tells what a document is, whatever stands before it."""

import pytest

from service.feeds.prolog import root_element


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b"<rss>", "rss"),
        (b"\xef\xbb\xbf \n<?xml version='1.0'?><!-- <html> --><RSS version='2.0'>", "rss"),
        (b"<rdf:RDF xmlns:rdf='x'>", "rdf"),
        (b'<!DOCTYPE rss [<!ENTITY a "<b>">]><rss>', "rss"),
        (b'<!DOCTYPE html PUBLIC "x"><html>', "html"),
        (b' {"a": 1}', "{"),
        (b"hello", ""),
        (b"< rss>", ""),
        (b"<!-- never closed", None),
        (b"", None),
    ],
)
def test_the_root_element_is_found(body: bytes, name: str | None) -> None:
    assert root_element(body) == name


def test_many_comments_are_read_once() -> None:
    assert root_element(b"<!---->" * 100_000 + b"<rss>") == "rss"
