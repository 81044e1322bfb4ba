"""The root element of a document is found whatever precedes it."""

import pytest

from service.feeds.parsing.format_detection import root_element


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("<rss>", "rss"),
        ("\ufeff \n<?xml version='1.0'?><!-- <html> --><RSS version='2.0'>", "rss"),
        ("<rdf:RDF xmlns:rdf='x'>", "rdf"),
        ('<!DOCTYPE rss [<!ENTITY a "<b>">]><rss>', "rss"),
        ('<!DOCTYPE html PUBLIC "x"><html>', "html"),
        (' {"a": 1}', "{"),
        ("hello", ""),
        ("< rss>", ""),
        ("<!-- never closed", None),
        ("", None),
    ],
)
def test_the_root_element_is_found(text: str, name: str | None) -> None:
    assert root_element(text) == name


def test_many_comments_take_linear_time() -> None:
    assert root_element("<!---->" * 100_000 + "<rss>") == "rss"
