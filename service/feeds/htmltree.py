"""From the bytes of an HTML page to its tree, in linear time; runs in a killable child (``sandbox``)."""

import re

from lxml import etree, html

from service.feeds.charset import text_of

MAX_ATTRIBUTES = 200
_CHARSET = re.compile(rb"<meta\s[^<>]{0,200}?charset\s*=\s*[\"']?\s*([\w.:-]{1,40})", re.IGNORECASE)
_CHARSET_WITHIN_BYTES = 1024  # HTML, "Specifying the document's character encoding"
_LONG_TAG = re.compile(r"<([A-Za-z][A-Za-z0-9]{0,20})(?=[\s/])[^<>]{800,}>")
_BETWEEN_ATTRIBUTES = re.compile(r"[\s/\"']+")


def html_text(body: bytes, content_type: str) -> str:
    """Return the page's text; of the encodings that are named, a header's counts more than the page's own."""
    return text_of(body, content_type if "charset" in content_type.lower() else _with_meta(body, content_type))


def html_tree(text: str) -> html.HtmlElement | None:
    """Return the page's root without comments; None if it has none. Raises :class:`MemoryError`."""
    # Nothing but UTF-8 reaches the parser, so that no declaration in the document can mislead it.
    parser = html.HTMLParser(encoding="utf-8", no_network=True, huge_tree=False, remove_comments=True, remove_pis=True)
    try:
        root = html.document_fromstring(_LONG_TAG.sub(_bounded_tag, text).encode("utf-8", "replace"), parser=parser)
    except (etree.LxmlError, ValueError):
        root = None
    if any(error.type == etree.ErrorTypes.ERR_NO_MEMORY for error in parser.error_log):
        raise MemoryError  # what libxml2 has until then would pass for the whole page
    return root


def _with_meta(body: bytes, content_type: str) -> str:
    found = _CHARSET.search(body, 0, _CHARSET_WITHIN_BYTES)
    return f"{content_type}; charset={found[1].decode()}" if found else content_type


def _bounded_tag(tag: re.Match[str]) -> str:
    """Return the tag, bare if it may have more than 200 attributes: libxml2 takes quadratic time for them."""
    return tag[0] if len(_BETWEEN_ATTRIBUTES.findall(tag[0])) <= MAX_ATTRIBUTES else f"<{tag[1]}>"
