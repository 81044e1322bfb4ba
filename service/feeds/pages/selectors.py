"""Evaluation of selectors, which limit a watched page to a part of it; runs in the ``sandbox``.

There are three kinds: CSS selectors for HTML, XPath 1.0 (``xpath=…``) for HTML and XML, and JSONPath (``json=…``).

The expressions come from users, and the documents from publishers. Nothing here bounds the time and memory of CSS and
XPath: an expression of 30 characters can take cubic time. The limits of the parser process end such an evaluation.
"""

from collections.abc import Iterator
from typing import Any, Final

import cssselect
import msgspec
from lxml import etree, html

from service.errors import EmptyBody
from service.feeds.pages.json_path import InvalidPath, TooManyValues, parse_path, select_values
from service.feeds.pages.page_lines import Line, page_lines, plain_lines
from service.feeds.parsing.xml_parser import new_xml_parser

XPATH: Final = "xpath="
JSON_PATH: Final = "json="


def select_css(root: html.HtmlElement, selector: str) -> list[Line]:
    """Return the lines of text in the elements that the CSS ``selector`` matches, in document order.

    Raises :class:`EmptyBody` if the selector is invalid, and :class:`MemoryError` if it needs more memory than the
    process may use.
    """
    # Some selectors take quadratic time: ``:nth-child`` among 20,000 siblings takes 5 s. The limits of the parser
    # process stop them.
    try:
        found = root.cssselect(selector, translator="html")
    except (cssselect.SelectorError, etree.XPathError, ValueError, RecursionError) as error:
        _raise_if_out_of_memory(error)
        raise EmptyBody(
            "`{selector}` isn't a CSS selector, so it matches nothing on the page. Please check how it's written.",
            selector=selector,
        ) from error
    return page_lines(*_outermost(found))


def select_xpath(root: etree._Element, selector: str) -> list[Line]:
    """Return the lines of text that the XPath in ``selector`` (``xpath=…``) selects in an HTML or XML document.

    - Elements are converted to lines as on a page in HTML. In XML, each text node becomes a line.
    - Attributes, texts, numbers and truth values become a line each.
    - The prefixes that the root element declares can be used. In XML, a path needs no prefix for the default namespace.

    Only the functions of XPath 1.0 exist. Raises :class:`EmptyBody` if the expression is invalid, and
    :class:`MemoryError` if it needs more memory than the process may use.
    """
    is_html = isinstance(root, html.HtmlElement)
    prefixes = {prefix: uri for prefix, uri in root.nsmap.items() if prefix}
    try:
        expression = etree.XPath(selector.removeprefix(XPATH), namespaces=prefixes, regexp=False, smart_strings=False)
        found: Any = expression(root)
    except (etree.XPathError, ValueError) as error:
        _raise_if_out_of_memory(error)
        raise EmptyBody(
            "`{selector}` isn't an XPath 1.0 expression. Write it like `{example}`.",
            selector=selector,
            example='xpath=//div[@id="price"]',
        ) from error
    if not isinstance(found, list):
        return plain_lines(_xpath_value(found))
    if is_html and all(etree.iselement(each) for each in found):
        return page_lines(*_outermost(found))
    return plain_lines(line for each in found for line in _xpath_lines(each, is_html=is_html))


def parse_xml(text: str, selector: str) -> etree._Element:
    """Parse an XML document, without loading anything else; return its root element.

    The elements in the root's default namespace lose their namespace. Raises :class:`EmptyBody`, which mentions
    ``selector``, if the document is not well-formed or declares entities.
    """
    try:
        # Entities can expand to far more text than the document has, so documents that declare them are not parsed.
        root = etree.fromstring(b"" if "<!ENTITY" in text else text.encode("utf-8", "replace"), new_xml_parser())
    except (etree.LxmlError, ValueError) as error:
        _raise_if_out_of_memory(error)
        raise EmptyBody(
            "The document isn't well-formed XML, so `{selector}` can't be applied to it.", selector=selector
        ) from error
    default = root.nsmap.get(None)
    for element in root.iter(f"{{{default}}}*") if default else ():
        element.tag = etree.QName(element).localname
    return root


def select_json(text: str, selector: str) -> list[Line]:
    """Return the lines of text of the values that the JSONPath in ``selector`` (``json=…``) selects.

    - A text is divided into its lines; a number, ``true``, ``false`` or ``null`` is one line.
    - An object or array is formatted with each member on a line of its own.

    Raises :class:`EmptyBody` if the path is invalid or selects too much, or if ``text`` is not JSON.
    """
    example = "json=$.items[*].price"
    try:
        path = parse_path(selector.removeprefix(JSON_PATH))
    except InvalidPath as error:
        if "?" in error.rest or "(" in error.rest:
            raise EmptyBody(
                "Filters (`?…`) and functions can't be used in `{selector}`. Select all items instead, e.g. "
                "`{example}`.",
                selector=selector,
                example=example,
            ) from error
        raise EmptyBody(
            "I can't read `{rest}` in `{selector}`. Write a JSONPath like `{example}`, made of names, `['other "
            "names']`, `[0]`, `[1:3]`, `*` and `..`.",
            rest=error.rest,
            selector=selector,
            example=example,
        ) from error
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise EmptyBody(
            "The document isn't JSON, so `{selector}` matches nothing. For a web page, write a CSS selector or "
            "`{example}`.",
            selector=selector,
            example='xpath=//div[@id="price"]',
        ) from error
    try:
        values = select_values(document, path)
    except TooManyValues as error:
        raise EmptyBody("`{selector}` selects too much. Please narrow it down.", selector=selector) from error
    return plain_lines(line for value in values for line in _json_lines(value))


def _raise_if_out_of_memory(error: Exception) -> None:
    log: Any = error.error_log if isinstance(error, etree.LxmlError) else ()  # the stubs of lxml declare no methods
    if any(each.type == etree.ErrorTypes.ERR_NO_MEMORY for each in log):
        raise MemoryError from error


def _outermost(found: list[etree._Element]) -> Iterator[etree._Element]:
    matches = set(found)
    return (match for match in found if matches.isdisjoint(match.iterancestors()))


def _xpath_value(value: Any) -> list[str]:
    """Return the text of an XPath number, truth value or string; a number that is not one (NaN) has no text."""
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, float):
        return [] if value != value else [str(int(value)) if value.is_integer() else f"{value:.15g}"]  # noqa: PLR0124 - NaN
    return str(value).splitlines()


def _xpath_lines(node: Any, *, is_html: bool) -> Iterator[str]:
    """Yield the lines of a node: an element, the text of an attribute or text node, or a (prefix, URI) pair."""
    if not etree.iselement(node):
        yield from str(node[1] if isinstance(node, tuple) else node).splitlines()
    elif is_html:
        yield from (line.text for line in page_lines(node))
    else:
        for text in node.itertext():
            yield from str(text).splitlines()


def _json_lines(value: Any) -> list[str]:
    if isinstance(value, str):
        return value.splitlines()
    encoded = msgspec.json.encode(value)
    if isinstance(value, dict | list):
        encoded = msgspec.json.format(encoded, indent=1)
    return encoded.decode().splitlines()
