"""A fast parser of well-formed RSS and Atom, based on lxml: several times as fast as feedparser.

Contract: :func:`parse` returns exactly the result of :func:`feedparser_adapter.parse` for the same document, or None.
None means that feedparser has to parse the document. This is the case if the document is not well-formed, has a
DOCTYPE (so that there are no entities to expand and nothing to load), is in a rare dialect, or contains an element or
a value for which ``fast_parser_elements`` and ``fast_parser_values`` do not reproduce feedparser's result. feedparser
is the reference: tests/property/test_fast_parser.py compares both results for generated documents.
"""

import contextlib
import re
from itertools import islice
from urllib.parse import urljoin

from lxml import etree

from service.feeds.entries.fingerprints import site_hash
from service.feeds.entries.unchanged_entries import (
    MAX_HASHED_ENTRIES,
    ElementHasher,
    FullParseRequired,
    PreviousDocument,
)
from service.feeds.parsing.fast_parser_elements import ROOT_HANDLERS, DocumentWalker, ParsedFields, base_url
from service.feeds.parsing.fast_parser_values import Element, ElementNames, FeedparserRequired, read_attributes
from service.feeds.parsing.feed_metadata import read_link_relations, read_metadata, read_polling_hints
from service.feeds.parsing.limits import (
    FIELD_CHARS,
    MAX_ENTRIES,
    NAME_CHARS,
    TEXT_CHARS,
    absolute_link,
    newest_entries,
    title_line,
    unique_names,
)
from service.model import ParsedEntry, ParsedFeed

_DAMAGED = "\ufffd"  # stands for undecodable bytes, and is not allowed in XML by some editions
_MAX_ENDS = 2 * MAX_ENTRIES
_END = re.compile(b"</(?:item|entry)")
_ATOM_FEED = "{http://www.w3.org/2005/Atom}feed"


def parse(text: str, *, url: str, language: str, previous: PreviousDocument | None = None) -> ParsedFeed | None:
    """Return the same feed as :func:`feedparser_adapter.parse`, or None if feedparser has to parse the document.

    ``url`` is where the document was fetched from, ``language`` the ``Content-Language`` header. If ``previous`` is
    given and the document permits it, entries that are unchanged since the previous document are left out. The result
    then has element hashes, by which unchanged entries are recognised next time.
    """
    if _DAMAGED in text:
        return None
    body = text.encode()
    ends = len(list(islice(_END.finditer(body), _MAX_ENDS + 1)))
    if b"<!DOCTYPE" in body or ends > _MAX_ENDS:
        return None
    hasher = ElementHasher(previous, len(body)) if previous and ends <= MAX_HASHED_ENTRIES else None
    parser = etree.XMLParser(
        encoding="utf-8",  # whatever the document declares
        resolve_entities=False,
        load_dtd=False,
        no_network=True,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
        strip_cdata=False,  # the text is the same, and is serialized as in the document
    )
    try:
        root = etree.fromstring(body, parser)
        with contextlib.suppress(FullParseRequired):
            return _feed(root, text, url, language, hasher)
        return _feed(root, text, url, language, None)
    except (FeedparserRequired, etree.XMLSyntaxError, RecursionError):
        return None


def _feed(root: Element, text: str, url: str, language: str, hasher: ElementHasher | None) -> ParsedFeed:
    about, entries = _read(root, ElementNames(text), urljoin(url, url), language, hasher)
    title, link = (
        title_line(about.title[:TEXT_CHARS], is_markup="html" in about.title_type),
        absolute_link(about.link, url),
    )
    element_hashes = hasher.finish(site_hash(url, link)) if hasher else ()
    if not entries and not element_hashes and not title and not link:
        raise FeedparserRequired
    related = read_link_relations(about.links, url)
    return ParsedFeed(
        title=title,
        link=link,
        id=about.id[:FIELD_CHARS].strip(),
        language=about.language[:NAME_CHARS].strip(),
        entries=tuple(_entry(each, url) for each in newest_entries(entries, _date_s)),
        polling_hints=read_polling_hints(text, about.hints),
        **related,
        element_hashes=element_hashes,
        metadata=read_metadata(about.tags.names(), *about.generator),
    )


def _read(
    root: Element, known: ElementNames, base: str, language: str, hasher: ElementHasher | None
) -> tuple[ParsedFields, list[ParsedFields]]:
    """Walk through the document; return the fields of the feed and the fields of each entry.

    ``known`` are feedparser's names of the elements. ``base`` is the base URL of links, and ``language`` the default
    language. With a ``hasher``, unchanged entries are skipped.
    """
    kind, found = known[root.tag], read_attributes(root)
    if kind not in ROOT_HANDLERS or (kind == "feed" and root.tag != _ATOM_FEED):
        raise FeedparserRequired
    if known.is_atom is not (kind == "feed") and kind != "rss":
        raise FeedparserRequired
    stated = found.get("xml:lang", found.get("lang")) if kind != "rdf_rdf" else None
    about = ParsedFields(is_entry=False, language=(stated or language).replace("_", "-"))
    walker = DocumentWalker(known, is_atom=kind == "feed", base=base_url(found, base), fields=about, hasher=hasher)
    walker.walk(root, 2, ROOT_HANDLERS[kind])
    return about, walker.entries


def _entry(fields: ParsedFields, url: str) -> ParsedEntry:
    contents = [content[:TEXT_CHARS].strip() for content in fields.contents]
    return ParsedEntry(
        id=fields.id[:FIELD_CHARS].strip(),
        link=absolute_link(fields.link, url),
        title=title_line(fields.title[:TEXT_CHARS], is_markup="html" in fields.title_type),
        summary=(fields.summary or "")[:TEXT_CHARS].strip(),
        content=max(contents, key=len) if contents else "",
        authors=unique_names(fields.authors),
        tags=unique_names(fields.tags.names()),
        published=fields.published,
        updated=fields.updated,
        enclosure=absolute_link(next((href for rel, href in fields.links if rel == "enclosure"), None), url),
    )


def _date_s(fields: ParsedFields) -> float | None:
    return fields.published or fields.updated
