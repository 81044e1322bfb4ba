"""XPath and JSONPath selectors: what they select, and which expressions and documents are refused."""

import json
import re
from collections.abc import Mapping

import pytest

from service.errors import EmptyBody
from service.feeds.pages.content_extraction import parse_page
from service.feeds.pages.json_path import TooManyValues, parse_path, select_values

HTML: Mapping[str, str] = {"Content-Type": "text/html; charset=utf-8"}
XML: Mapping[str, str] = {"Content-Type": "application/xml"}
JSON: Mapping[str, str] = {"Content-Type": "application/json"}

SHOP = """<title>Shop</title><body><nav>Menu</nav><div id=price title='in stock'>5 <b>€</b></div>
  <p>one</p><p>two<script>x</script>"""
RATES = """<?xml version="1.0"?><list xmlns="urn:bank" xmlns:x="urn:x" date="2026-11-29">
  <rate code="USD"><x:value>1.0853</x:value></rate><rate code="CHF"><x:value>0.94</x:value><title>Franc</title></rate>
</list>"""
ITEMS = json.dumps(
    {
        "items": [{"name": "Pears", "price": 1.5}, {"name": "Plums\nred", "price": 3, "old-price": None}],
        "open": True,
        "a'b": {'c"d': "x"},
    }
)


def selected(text: str, selector: str, headers: Mapping[str, str] = HTML) -> list[str]:
    return list(parse_page(text.encode(), headers=headers, selector=selector).lines)


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ('xpath=//div[@id="price"]', ["5 €"]),
        ("xpath=//div/@title", ["in stock"]),
        ("xpath=//p/text()", ["one", "two"]),
        ("xpath=//p", ["one", "two"]),
        ("xpath=//nav", ["Menu"]),
        ("xpath=//body | //p", ["Menu", "5 €", "one", "two"]),  # no match within another one counts twice
        ("xpath=//p[1] | //div/@title", ["in stock", "one"]),
        ("xpath=count(//p)", ["2"]),
        ("xpath=count(//p) div 4", ["0.5"]),
        ("xpath=string(//b)", ["€"]),
        ('xpath=contains(//p, "sold out")', ["false"]),
    ],
)
def test_an_xpath_selects_elements_attributes_texts_and_values_of_html(selector: str, found: list[str]) -> None:
    assert selected(SHOP, selector) == found
    assert parse_page(SHOP.encode(), headers=HTML, selector=selector).title == "Shop"


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ('xpath=//rate[@code="CHF"]', ["0.94", "Franc"]),
        ("xpath=//rate/x:value", ["1.0853", "0.94"]),
        ("xpath=//rate/title", ["Franc"]),
        ("xpath=/list/@date", ["2026-11-29"]),
        ("xpath=sum(//x:value)", ["2.0253"]),
    ],
)
@pytest.mark.parametrize("headers", [XML, {"Content-Type": "text/plain"}, {}])
def test_an_xpath_selects_in_xml_by_the_prefixes_of_the_root(
    selector: str, found: list[str], headers: Mapping[str, str]
) -> None:
    assert selected(RATES, selector, headers) == found


@pytest.mark.parametrize(
    "expression",
    [
        "", "//p[", "//a:b", "$x", "lower-case(//p)", "document('/etc/passwd')", "unparsed-text('file:///etc/passwd')",
        "re:test(., 'a')", "re:match(., '(a+)+')", "exsl:node-set(.)", "str:padding(9, 'x')", "function()",
    ],
)  # fmt: skip
def test_an_invalid_xpath_or_a_foreign_function_raises_empty_body(expression: str) -> None:
    with pytest.raises(EmptyBody, match=r"isn't an XPath 1\.0 expression\. Write it like `xpath=//div"):
        selected(SHOP, f"xpath={expression}")


@pytest.mark.parametrize("selector", ["xpath=//h7", "xpath=number(//p)", "xpath=string(//h7)", "xpath=//script"])
def test_an_xpath_without_text_raises_empty_body(selector: str) -> None:
    with pytest.raises(EmptyBody, match="Nothing on the page matches"):
        selected("<p>x", selector)


@pytest.mark.parametrize(
    "text",
    [
        "<a><b></a>",
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
        '<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>',
        "<?xml?>",
    ],
)
def test_an_xpath_in_broken_xml_or_with_entities_raises_empty_body(text: str) -> None:
    with pytest.raises(EmptyBody, match="isn't well-formed XML"):
        selected(text, "xpath=//a", XML)


def test_an_external_document_type_is_not_loaded() -> None:
    assert selected('<!DOCTYPE a SYSTEM "file:///etc/passwd"><a>x</a>', "xpath=//a", XML) == ["x"]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.items[*].price", ["1.5", "3"]),
        ("$.items[-1].name", ["Plums", "red"]),
        ("$.items[0,1].price", ["1.5", "3"]),
        ("$.items[::-1].price", ["3", "1.5"]),
        ("$.items[1:].price", ["3"]),
        ("$..price", ["1.5", "3"]),
        ("$..[0].name", ["Pears"]),
        ("$.items[1]['old-price']", ["null"]),
        ("$.open", ["true"]),
        ("$['a\\'b'][\"c\\\"d\"]", ["x"]),
        ("$['a\\u0027b'].*", ["x"]),
        ("$.items[0]", ["{", '"name": "Pears",', '"price": 1.5', "}"]),
    ],
)
@pytest.mark.parametrize("headers", [JSON, {"Content-Type": "text/html"}, {}])
def test_a_json_path_selects_values(path: str, found: list[str], headers: Mapping[str, str]) -> None:
    assert selected(ITEMS, f"json={path}", headers) == found


@pytest.mark.parametrize(
    "path", ["$.nothing", "$.items[2]", "$.items.name", "$.open[0]", "$.items[::0]", "$.items[-3]"]
)
def test_a_json_path_without_match_raises_empty_body(path: str) -> None:
    with pytest.raises(EmptyBody, match="Nothing on the page matches"):
        selected(ITEMS, f"json={path}", JSON)


@pytest.mark.parametrize(
    ("path", "rest"),
    [
        ("items", "items"), ("", ""), ("$items", "items"), ("$.", "."), ("$.a..", ".."), ("$.[0]", ".[0]"),
        ("$...a", "...a"), ("$[", ""), ("$[0", "0"), ("$[01]", "01]"), ("$['a]", "'a]"), ("$.a-b", "-b"),
        ("$['\\x']", "'\\x']"), ("$[]", "]"), ("$[0,]", "]"), ("$.a b", " b"),
    ],
)  # fmt: skip
def test_an_invalid_json_path_raises_empty_body_with_the_part_that_is_wrong(path: str, rest: str) -> None:
    with pytest.raises(EmptyBody, match=re.escape(f"I can't read `{rest}` in `json={path}`. Write a JSONPath like")):
        selected(ITEMS, f"json={path}", JSON)


@pytest.mark.parametrize("path", ["$.items[?@.price < 3]", "$[?(@.a)]", "$.items.length()", "length($)"])
def test_filters_and_functions_of_json_path_are_refused_by_name(path: str) -> None:
    with pytest.raises(EmptyBody, match=r"Filters .* and functions can't be used"):
        selected(ITEMS, f"json={path}", JSON)


def test_a_selector_of_another_kind_than_the_document_says_what_to_write() -> None:
    with pytest.raises(EmptyBody, match=r"isn't JSON.*a CSS selector or `xpath="):
        selected(SHOP, "json=$.a")
    with pytest.raises(EmptyBody, match=r"neither HTML nor XML.*`json="):
        selected(ITEMS, "xpath=//a", JSON)


def test_a_json_path_that_selects_too_much_raises_empty_body() -> None:
    text = json.dumps([[0] * 400] * 400)
    with pytest.raises(EmptyBody, match="selects too much"):
        selected(text, "json=$..*", JSON)
    assert len(selected(text, "json=$[*][0]", JSON)) == 400


def test_the_steps_of_a_json_path_are_limited() -> None:
    with pytest.raises(TooManyValues):
        select_values([0] * 90_000, parse_path("$" + "[*, 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x']" * 2))


def test_deep_json_is_refused_or_read_without_recursion() -> None:
    with pytest.raises(EmptyBody):
        selected("[" * 100_000 + "]" * 100_000, "json=$..*", JSON)
    nested: list[object] = []
    for _ in range(50_000):
        nested = [nested]
    assert len(select_values(nested, parse_path("$..*"))) == 50_000
