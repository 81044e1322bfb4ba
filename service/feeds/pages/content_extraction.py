"""Extraction of a web page's main content as lines of text; runs in the ``sandbox``.

The main content is all visible text except *boilerplate*. Boilerplate is the text in certain landmarks of the page:
navigation, header, footer, aside and form.

- A landmark that contains more than half of all text is not boilerplate: some pages are entirely inside a ``<form>``.
- If ``<main>``, or the page's only ``<article>``, contains at least half of the text that is not boilerplate, it is the
  main content.
- If less than a tenth of all text is not boilerplate, all text is used instead.

General article extractors are not used, because they omit the price lists, tables and indexes that people watch.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from lxml import html

from service.errors import EmptyBody, NotAFeed
from service.feeds.pages.page_lines import LINE_CHARS, Landmark, Line, decode_html, page_lines, parse_html, plain_lines
from service.feeds.pages.selectors import JSON_PATH, XPATH, parse_xml, select_css, select_json, select_xpath
from service.feeds.parsing.html_text import one_line
from service.model import ParsedPage

_TITLE_CHARS = 200
_LOGIN_CHARS = 500
_BINARY_SAMPLE_CHARS = 4_096
_BINARY_SHARE = 0.02
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_MIN_CONTENT_SHARE = 0.1
_BOILERPLATE = frozenset({"nav", "header", "footer", "aside", "form"})


def parse_page(body: bytes, *, headers: Mapping[str, str], selector: str = "") -> ParsedPage:
    """Return the main content of the page in ``body``, which was fetched with the response headers ``headers``.

    - If a ``selector`` is given, the text that it matches is returned instead. This may be boilerplate, such as
      navigation. A CSS selector applies to HTML pages, an XPath (``xpath=…``) to HTML and XML, and a JSONPath
      (``json=…``) to JSON.
    - Plain text and JSON are returned line by line.

    Raises :class:`EmptyBody` if there is no visible text, if ``selector`` is invalid, does not suit the document or
    matches no text, or if the page is only a login form. Raises :class:`NotAFeed` if the document is not text.
    """
    lowered = {name.lower(): value for name, value in headers.items()}
    content_type = lowered.get("content-type", "")
    text = decode_html(body, content_type)
    if _is_binary(text):
        raise NotAFeed("This is no page of text; it cannot be watched.")
    if selector.startswith(JSON_PATH):
        return _page("", _matching(select_json(text, selector), selector))
    if selector.startswith(XPATH) and _is_xml(content_type, text):
        return _page("", _matching(select_xpath(parse_xml(text, selector), selector), selector))
    if _is_plain(content_type):
        return _page("", _plain_text(text, selector))
    root = parse_html(text)
    if root is None:
        raise EmptyBody("The page is empty. Please check the address, or try again later.")
    if selector:
        lines = _matching((select_xpath if selector.startswith(XPATH) else select_css)(root, selector), selector)
    else:
        lines = _main_content(page_lines(root))
    is_short = sum(len(line.text) for line in lines) <= _LOGIN_CHARS
    if not lines or (is_short and not selector and _asks_for_password(root)):
        raise _empty_page_error(root)
    title = next((element.text_content() for element in root.iter("title")), "")
    return _page(one_line(title, _TITLE_CHARS), lines)


def extract_article(body: bytes, *, headers: Mapping[str, str]) -> str:
    """Return the beginning of the article in an HTML page, in one line of at most 2,000 characters; "" without one.

    The process must have loaded trafilatura, of which other processes need no copy.
    """
    from trafilatura import extract  # noqa: PLC0415 - see above

    content_type = headers.get("content-type", "")
    text = decode_html(body, content_type)
    page = None if _is_binary(text) or "html" not in content_type.lower() else parse_html(text)
    if page is None:
        return ""
    # fast: without other extractors, which would read lists of words from files.
    found = extract(page, fast=True, favor_precision=True, include_comments=False, include_tables=False)
    article = one_line(found or "", LINE_CHARS)
    return "" if len(article) <= _LOGIN_CHARS and _asks_for_password(page) else article


def _page(title: str, lines: Sequence[Line]) -> ParsedPage:
    headings = tuple(place for place, line in enumerate(lines) if line.is_heading)
    return ParsedPage(title, tuple(line.text for line in lines), headings)


def _is_binary(text: str) -> bool:
    beginning = text[:_BINARY_SAMPLE_CHARS]
    return _BINARY_SHARE * len(beginning) < len(_CONTROLS.findall(beginning))


def _is_plain(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return (kind.startswith("text/") and kind not in {"text/html", "text/xml"}) or kind.endswith("json")


def _is_xml(content_type: str, text: str) -> bool:
    kind = content_type.partition(";")[0].lower()
    return "html" not in kind and ("xml" in kind or text.lstrip().startswith("<?xml"))


def _plain_text(text: str, selector: str) -> list[Line]:
    if selector.startswith(XPATH):
        raise EmptyBody(
            "The document is neither HTML nor XML, so `{selector}` matches nothing. For JSON, write e.g. `{example}`.",
            selector=selector,
            example="json=$.items[*].price",
        )
    lines = plain_lines(text.splitlines())
    if not lines:
        raise EmptyBody("The document is empty. Please check the address, or try again later.")
    return lines


def _matching(lines: list[Line], selector: str) -> list[Line]:
    if not lines:
        raise EmptyBody("Nothing on the page matches `{selector}`. Please check the selector.", selector=selector)
    return lines


def _asks_for_password(root: html.HtmlElement) -> bool:
    return any(field.get("type", "").lower() == "password" for field in root.iter("input"))


def _empty_page_error(root: html.HtmlElement) -> EmptyBody:
    if _asks_for_password(root):
        return EmptyBody("The page asks for a login, and I don't have one. I can only read what anyone can open.")
    if next(root.iter("script"), None) is not None:
        return EmptyBody(
            "The page shows nothing without JavaScript, which I don't run; look for a feed or another page."
        )
    return EmptyBody("The page is empty. Please check the address, or try again later.")


def _main_content(lines: Sequence[Line]) -> list[Line]:
    """Return the lines of a page's main content, in page order.

    The text in navigation, header, footer, aside and form is boilerplate; all other text is content. As an exception,
    an element with more than half of the page's text, such as a form around the whole page, also counts as content.

    The result is the first of the following that applies:

    1. all text, if less than a tenth of it is content
    2. the text of ``<main>``, if it is at least half of the content
    3. the text of the page's only ``<article>``, if it is at least half of the content
    4. all content
    """
    sizes: Counter[Landmark] = Counter()
    for line in lines:
        sizes[line.landmark] += len(line.text)
    total = sizes.total()
    boilerplate = {landmark for landmark, size in sizes.items() if landmark.kind in _BOILERPLATE and 2 * size <= total}
    content = sizes.keys() - boilerplate
    remaining = sum(sizes[landmark] for landmark in content)
    if remaining < _MIN_CONTENT_SHARE * total:
        return list(lines)
    articles = {landmark for landmark in content if landmark.kind == "article"}
    for main in (
        {landmark for landmark in content if landmark.kind == "main"},
        articles if len(articles) == 1 else set(),
    ):
        if main and 2 * sum(sizes[landmark] for landmark in main) >= remaining:
            content = main
            break
    return [line for line in lines if line.landmark in content]
