"""Well-formed RSS and Atom by lxml, several times as fast as by feedparser; the rest is declined.

Left to feedparser are documents that lxml finds not well-formed, those with a document type (so that there are
no entities to expand and nothing to load), other dialects, and whatever ``strict_fields`` and its likes are
not sure to read as feedparser does. feedparser is the judge: the tests compare the two on every document there is.
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
from service.feeds.parsing.fast_parser_fields import ROOTS, Fields, Reader, based
from service.feeds.parsing.fast_parser_values import Declined, Element, Names, attributes
from service.feeds.parsing.feed_metadata import relations, wishes
from service.feeds.parsing.limits import (
    FIELD_CHARS,
    MAX_ENTRIES,
    NAME_CHARS,
    PROSE_CHARS,
    absolute_link,
    imprint,
    names,
    newest,
    title_line,
)
from service.model import ParsedEntry, ParsedFeed

_DAMAGED = "\ufffd"  # what is damaged is no text, and no XML of some editions
_MOST_ENDS = 2 * MAX_ENTRIES
_END = re.compile(b"</(?:item|entry)")
_ATOM_FEED = "{http://www.w3.org/2005/Atom}feed"


def parse(text: str, *, url: str, language: str, previous: PreviousDocument | None = None) -> ParsedFeed | None:
    """Return what :func:`feedparser_adapter.parse` returns for this document, or None to leave it to that.

    Entries that are ``familiar`` are left out, if that is given, and all are marked.
    """
    if _DAMAGED in text:
        return None
    body = text.encode()
    ends = len(list(islice(_END.finditer(body), _MOST_ENDS + 1)))
    if b"<!DOCTYPE" in body or ends > _MOST_ENDS:
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
        strip_cdata=False,  # which is the same text, and written out as it is
    )
    try:
        root = etree.fromstring(body, parser)
        with contextlib.suppress(FullParseRequired):
            return _feed(root, text, url, language, hasher)
        return _feed(root, text, url, language, None)
    except (Declined, etree.XMLSyntaxError, RecursionError):
        return None


def _feed(root: Element, text: str, url: str, language: str, hasher: ElementHasher | None) -> ParsedFeed:
    about, entries = _read(root, Names(text), urljoin(url, url), language, hasher)
    title, link = (
        title_line(about.title[:PROSE_CHARS], is_markup="html" in about.title_type),
        absolute_link(about.link, url),
    )
    element_hashes = hasher.finish(site_hash(url, link)) if hasher else ()
    if not entries and not element_hashes and not title and not link:
        raise Declined
    related = relations(about.links, url)
    return ParsedFeed(
        title=title,
        link=link,
        id=about.id[:FIELD_CHARS].strip(),
        language=about.language[:NAME_CHARS].strip(),
        entries=tuple(_entry(each, url) for each in newest(entries, _date_s)),
        polling_hints=wishes(text, about.hints),
        **related,
        element_hashes=element_hashes,
        metadata=imprint(about.tags.names(), *about.generator),
    )


def _read(
    root: Element, known: Names, base: str, language: str, hasher: ElementHasher | None
) -> tuple[Fields, list[Fields]]:
    """Walk through the document; return what the feed and its entries say."""
    kind, found = known[root.tag], attributes(root)
    if kind not in ROOTS or (kind == "feed" and root.tag != _ATOM_FEED):
        raise Declined
    if known.speaks_atom is not (kind == "feed") and kind != "rss":
        raise Declined
    stated = found.get("xml:lang", found.get("lang")) if kind != "rdf_rdf" else None
    about = Fields(is_entry=False, language=(stated or language).replace("_", "-"))
    reader = Reader(known, speaks_atom=kind == "feed", base=based(found, base), fields=about, hasher=hasher)
    reader.read(root, 2, ROOTS[kind])
    return about, reader.entries


def _entry(fields: Fields, url: str) -> ParsedEntry:
    contents = [content[:PROSE_CHARS].strip() for content in fields.contents]
    return ParsedEntry(
        id=fields.id[:FIELD_CHARS].strip(),
        link=absolute_link(fields.link, url),
        title=title_line(fields.title[:PROSE_CHARS], is_markup="html" in fields.title_type),
        summary=(fields.summary or "")[:PROSE_CHARS].strip(),
        content=max(contents, key=len) if contents else "",
        authors=names(fields.authors),
        tags=names(fields.tags.names()),
        published=fields.published,
        updated=fields.updated,
        enclosure=absolute_link(next((href for rel, href in fields.links if rel == "enclosure"), None), url),
    )


def _date_s(fields: Fields) -> float | None:
    return fields.published or fields.updated
