"""The names by which feedparser knows elements: a namespace's usual prefix, "_", and the local name in lower case."""

import re
from collections.abc import Sequence

from lxml import etree

# Of the namespaces that feedparser knows those in which it does anything; the others' prefixes are as good as any.
_KNOWN = {
    "": (
        "http://backend.userland.com/rss",
        "http://backend.userland.com/rss2",
        "http://blogs.law.harvard.edu/tech/rss",
        "http://purl.org/rss/1.0/",
        "http://my.netscape.com/rdf/simple/0.9/",
        "http://www.w3.org/2005/atom",
        "http://purl.org/rss/1.0/modules/rss091#",
        "http://purl.org/atom/ns#",
        "http://purl.org/pie/",
        "http://purl.org/echo/",
        "uri/of/echo/namespace#",
        "http://example.com/necho",
        "http://example.com/newformat#",
    ),
    "cc": ("http://creativecommons.org/ns#license", "http://web.resource.org/cc/"),
    "content": ("http://purl.org/rss/1.0/modules/content/",),
    "creativecommons": (
        "http://cyber.law.harvard.edu/rss/creativecommonsrssmodule.html",
        "http://backend.userland.com/creativecommonsrssmodule",
    ),
    "dc": ("http://purl.org/dc/elements/1.1/",),
    "dcterms": ("http://purl.org/dc/terms/",),
    "feedburner": ("http://rssnamespace.org/feedburner/ext/1.0",),
    "georss": ("http://www.georss.org/georss",),
    "gml": ("http://www.opengis.net/gml",),
    "itunes": ("http://www.itunes.com/dtds/podcast-1.0.dtd", "http://example.com/dtds/podcast-1.0.dtd"),
    "media": ("http://search.yahoo.com/mrss", "http://search.yahoo.com/mrss/"),
    "psc": ("http://podlove.org/simple-chapters",),
    "rdf": ("http://www.w3.org/1999/02/22-rdf-syntax-ns#",),
    "sy": ("http://purl.org/rss/1.0/modules/syndication/",),
    "xhtml": ("http://www.w3.org/1999/xhtml",),
    "xml": ("http://www.w3.org/xml/1998/namespace",),
}
_PREFIXES = {namespace: prefix for prefix, namespaces in _KNOWN.items() for namespace in namespaces}
_RSS_1 = ("http://purl.org/rss/1.0/", "http://my.netscape.com/rdf/simple/0.9/")
_ATOM = "http://www.w3.org/2005/atom"
_DECLARATION = re.compile(r"xmlns(?::([\w.-]+))?\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")

_IN_ANY_CASE = ("rel", "type")
_USUAL_ATTRIBUTES = {
    name: name for name in ("href", "rel", "type", "title", "term", "scheme", "label", "domain", "url", "length")
} | {"isPermaLink": "ispermalink", "{http://www.w3.org/XML/1998/namespace}base": "xml:base"}

Element = etree._Element  # noqa: SLF001 - lxml has no public name for its own type


class Declined(Exception):
    """Something in the document that is left to feedparser."""


class Names(dict[str, str]):
    """From lxml's tags to feedparser's names, for one document. Raises :class:`Declined` where that is not clear.

    ``speaks_atom``: feedparser takes the document's dialect for one of Atom's. It decides that by the
    namespaces that are declared, and in what order.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        declared = [(prefix, uri or other) for prefix, uri, other in _DECLARATION.findall(text)]
        self._prefixes: dict[str, str] = {}
        for prefix, uri in declared:
            if prefix and self._prefixes.setdefault(uri, prefix) != prefix and uri.lower() not in _PREFIXES:
                raise Declined
            self._check(prefix, uri)
        telling = [uri.lower() for _, uri in declared if uri.lower() in (*_RSS_1, _ATOM)]
        self.speaks_atom = telling[:1] == [_ATOM]

    def _check(self, prefix: str, uri: str) -> None:
        known = _PREFIXES.get(uri.lower())
        if known is None and "backend.userland.com/rss" in uri.lower():
            raise Declined
        if prefix in _KNOWN and prefix and prefix != known:
            raise Declined

    def __missing__(self, tag: str) -> str:
        name = self[tag] = self._name(*tag[1:].rsplit("}", 1)) if tag[0] == "{" else self._name("", tag)
        return name

    def _name(self, namespace: str, local: str) -> str:
        if not local.isascii():  # which characters make a name differs between editions of XML
            raise Declined
        prefix = _PREFIXES.get(namespace.lower()) if namespace else ""
        if prefix is None:
            prefix = self._prefixes.get(namespace)
            if prefix is None or prefix != prefix.lower():
                raise Declined
        return f"{prefix}_{local.lower()}" if prefix else local.lower()


def attributes(element: Element) -> dict[str, str]:
    """Return an element's attributes as feedparser names them: ``xml:lang``, ``rdf:about``, ``ispermalink``."""
    given: Sequence[tuple[str, str]] = element.items()  # type: ignore[assignment]  # the stubs allow for bytes
    found: dict[str, str] = {}
    for tag, value in given:
        name = _USUAL_ATTRIBUTES.get(tag) or _attribute_name(tag)
        if name in found:
            raise Declined
        found[name] = value.lower() if name in _IN_ANY_CASE else value
    return found


def _attribute_name(tag: str) -> str:
    name = tag.lower()
    if name[0] == "{":
        namespace, _, local = name[1:].partition("}")
        if not _PREFIXES.get(namespace):
            raise Declined
        name = f"{_PREFIXES[namespace]}:{local}"
    if not name.isascii():
        raise Declined
    return name
