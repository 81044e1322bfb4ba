"""A fast parser for well-formed RSS and Atom, based on lxml: several times as fast as feedparser.

:func:`parse` returns either exactly what :func:`feedparser_adapter.parse` returns for the same document, or None. None
means that feedparser has to parse the document, for one of these reasons:

- The document is not well-formed, has a DOCTYPE, or is in a rare dialect.
- The document contains an element or a value for which this module does not reproduce feedparser's result.

There is one handler per kind of element. Handlers reproduce feedparser's peculiarities: a second description becomes
content, an empty link counts as a link, and a title replaces an earlier one only if the earlier one was nested more
deeply. A handler raises :class:`FeedparserRequired` where reproducing feedparser's result would take more than a line
or two.
"""

# Without a DOCTYPE there are no entities to expand and nothing to load. feedparser is the reference:
# tests/property/test_fast_parser.py compares both results for generated documents.

import contextlib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from urllib.parse import urljoin

from lxml import etree

from service.feeds.entries.entry_hashes import site_hash
from service.feeds.entries.unchanged_entries import (
    MAX_HASHED_ENTRIES,
    MAX_NAMESPACES,
    ElementHasher,
    FullParseRequired,
    PreviousDocument,
)
from service.feeds.parsing.enclosures import read_files
from service.feeds.parsing.fast_parser_values import (
    FEEDPARSER_ELEMENTS,
    Element,
    ElementNames,
    FeedparserRequired,
    element_text,
    looks_like_html,
    parse_date,
    read_attributes,
    read_text_construct,
    repair_text,
    resolve_link,
)
from service.feeds.parsing.feed_metadata import read_link_relations, read_metadata, read_polling_hints
from service.feeds.parsing.field_limits import (
    ABSOLUTE_URL,
    FIELD_CHARS,
    MAX_ENTRIES,
    NAME_CHARS,
    TEXT_CHARS,
    absolute_link,
    newest_entries,
    title_line,
    unique_names,
)
from service.feeds.parsing.xml_parser import new_xml_parser
from service.model import ParsedEntry, ParsedFeed

_DAMAGED = "\ufffd"  # stands for undecodable bytes, and is not allowed in XML by some editions
_MAX_ENTRIES = 2 * MAX_ENTRIES
_ATOM_FEED = "{http://www.w3.org/2005/Atom}feed"

_HTML = ("text/html", "application/xhtml+xml")
_PERSON_PARTS = {"email", "uri", "url", "homepage"}
_SOURCE_PARTS = {
    "id", "title", "author", "updated", "link", "subtitle", "rights", "generator", "icon", "logo", "category",
}  # fmt: skip
_IMAGE_PARTS = {"title", "url", "link", "description", "width", "height", "name"}
_AUTHOR = re.compile(r"([a-zA-Z0-9_.+-]+@(?:[a-zA-Z0-9-]+\.)+[a-zA-Z]{2,4})(?: \(([^()@<>&]*[^()@<>&\s])\))?")

_UNKNOWN_DEPTH = -2
_HINT_ELEMENTS = {"ttl", "sy_updateperiod", "sy_updatefrequency"}


@dataclass(slots=True, eq=False)
class ParsedFields:
    """The values read so far for one entry, or for the feed itself if ``is_entry`` is false.

    ``enclosures`` and ``media`` are the attributes of the attached files and of the ``media:content`` elements.
    ``depths`` maps the name of each field to the depth of the element from which its value was read.
    """

    is_entry: bool
    language: str = ""
    id: str = ""
    title: str = ""
    title_type: str = ""
    link: str | None = None
    summary: str | None = None
    contents: list[str] = field(default_factory=list)
    authors: list[str] = field(default_factory=list)
    tags: list[str | None] = field(default_factory=list)
    links: list[tuple[str, str | None]] = field(default_factory=list)
    enclosures: list[dict[str, str | None]] = field(default_factory=list)
    media: list[dict[str, str]] = field(default_factory=list)
    thumbnails: list[str | None] = field(default_factory=list)
    image: str | None = None
    duration: str = ""
    hints: dict[str, str] = field(default_factory=dict)
    generator: tuple[str, str | None] = ("", None)
    published: float | None = None
    updated: float | None = None
    depths: dict[str, int] = field(default_factory=dict)

    def accept(self, name: str, depth: int) -> bool:
        """Return whether a value of the field ``name``, found at ``depth``, replaces the field's previous value.

        If it does, also record ``depth`` as the depth of the field. In an entry, a value from a deeper element never
        replaces the previous value.
        """
        if self.is_entry and depth > self.depths.get(name, depth):
            return False
        self.depths[name] = depth
        return True


class DocumentWalker:
    """Walks through one document and calls the handler of each element.

    - ``fields`` are the values of the entry or feed that is being read.
    - ``base`` is the base URL of this entry or feed.
    - ``entries`` are the entries read so far.
    - ``title_depth`` is the depth of the last title that was not empty; -1 if there has been no such title yet.
    - ``hasher`` recognises entries that have not changed since the previous document, so that they can be skipped; None
      if no entries are to be skipped.
    """

    def __init__(
        self, names: ElementNames, *, is_atom: bool, base: str, fields: ParsedFields, hasher: ElementHasher | None
    ) -> None:
        self.names = names
        self.hasher = hasher
        self.is_atom = is_atom
        self._dialect = " Atom " if is_atom else " RSS "
        self.base = base
        self.fields = fields
        self.entries: list[ParsedFields] = []
        self.title_depth = -1
        self.has_content = False

    def walk(self, parent: Element, depth: int, handlers: dict[str, "ElementHandler"]) -> None:
        """Call the handler of each child of ``parent``. The children are at depth ``depth``.

        ``handlers`` maps element names to handlers. The walk descends into elements without a handler.
        """
        names = self.names
        for element in parent:
            name = names[element.tag]
            handler = handlers.get(name)
            if handler:
                handler(self, element, depth)
                continue
            if name in _HINT_ELEMENTS:
                self.fields.hints[name] = "" if element.items() else repair_text(element_text(element))
            if len(element):
                if _base_url(read_attributes(element), self.base) != self.base:
                    raise FeedparserRequired
                self.walk(element, depth + 1, handlers)

    def skip_unchanged(self, element: Element, depth: int) -> bool:
        """Hash the entry in ``element``; return whether it is unchanged since the previous document.

        The caller must skip an unchanged entry.
        """
        # The title of a skipped entry is not read, although it affects whether feedparser accepts a later title.
        # Therefore :meth:`accepts_title` raises an error from then on, until a title's depth is known again.
        if not self.hasher or not self.hasher.skip_unchanged(element, f"{depth}{self._dialect}{self.base}"):
            return False
        self.title_depth = _UNKNOWN_DEPTH
        return True

    def accepts_title(self, depth: int) -> bool:
        """Return whether feedparser accepts a title at ``depth``.

        A title is accepted if there is no previous title, or if the previous title was nested more deeply. Raises
        :class:`FullParseRequired` if the depth of the previous title is unknown because an entry was skipped.
        """
        # It is unknown after an entry was skipped.
        if self.title_depth == _UNKNOWN_DEPTH:
            raise FullParseRequired
        return not -1 < self.title_depth <= depth


ElementHandler = Callable[[DocumentWalker, Element, int], None]
"""A function that handles an element at the given depth: it stores the element's values in the walker's ``fields``, or
raises :class:`FeedparserRequired`."""


def _base_url(attributes: dict[str, str], base: str) -> str:
    """Return the base URL for links within an element.

    ``attributes`` are the element's attributes. ``base`` is the base URL of the element's parent.
    """
    given = attributes.get("xml:base", attributes.get("base"))
    if given and not ABSOLUTE_URL.fullmatch(given):
        raise FeedparserRequired
    return given or base


def _on_title(walker: DocumentWalker, element: Element, depth: int) -> None:
    fields = walker.fields
    value, kind = read_text_construct(walker.names, element, "text/plain", may_be_xhtml=walker.is_atom)
    if kind == "text/plain" and not walker.is_atom and looks_like_html(value):
        kind = "text/html"
    value = repair_text(value)
    if walker.accepts_title(depth):
        if fields.accept("title", depth):
            fields.title = value
        fields.title_type = kind
    if value:
        walker.title_depth = depth


def _on_media_title(walker: DocumentWalker, element: Element, depth: int) -> None:
    title_depth = walker.title_depth
    _on_title(walker, element, depth)
    walker.title_depth = title_depth


def _on_summary(walker: DocumentWalker, element: Element, depth: int, *, default: str, in_feeds: bool) -> None:
    """Store the summary of an entry or feed.

    If the entry has a summary but no content yet, its second summary is stored as content.

    - ``default`` is the media type of an element without a ``type`` attribute.
    - ``in_feeds`` is false if only the summaries of entries are stored, and those of feeds are ignored.
    """
    fields = walker.fields
    if fields.summary is not None and not walker.has_content:
        _on_content(walker, element, depth)
        return
    value, _ = read_text_construct(walker.names, element, default, may_be_xhtml=walker.is_atom)
    if (fields.is_entry or in_feeds) and fields.accept("summary", depth):
        fields.summary = repair_text(value)


def _on_content(walker: DocumentWalker, element: Element, _depth: int, *, default: str = "text/plain") -> None:
    fields = walker.fields
    if not fields.is_entry:
        raise FeedparserRequired
    walker.has_content = True
    value = repair_text(read_text_construct(walker.names, element, default, may_be_xhtml=walker.is_atom)[0])
    fields.contents.append(value)
    if fields.summary is None:
        fields.summary = value


def _on_id(walker: DocumentWalker, element: Element, depth: int) -> None:
    fields, attributes = walker.fields, read_attributes(element)
    is_link = attributes.get("ispermalink", "true") == "true"
    value = element_text(element)
    if value and is_link:
        value = resolve_link(_base_url(attributes, walker.base), value)
    value = repair_text(value)
    if fields.accept("id", depth):
        fields.id = value
    if is_link and fields.link is None:
        fields.link = value


def _on_link(walker: DocumentWalker, element: Element, _depth: int) -> None:
    fields, attributes = walker.fields, read_attributes(element)
    base = _base_url(attributes, walker.base)
    rel = attributes.get("rel", "alternate")
    if "url" in attributes or "uri" in attributes or attributes.get("href") == "" or len(element):
        raise FeedparserRequired
    if "href" in attributes:
        href = resolve_link(base, attributes["href"])
        fields.links.append((rel, href))
        if rel == "enclosure":
            fields.enclosures.append({**attributes, "href": href})
        kind = attributes.get("type", "application/atom+xml" if rel == "self" else "text/html")
        if rel == "alternate" and kind in ("html", "xhtml", *_HTML):
            fields.link = href
        return
    text = element_text(element)
    if "&" in text and ";" in text:
        raise FeedparserRequired
    fields.link = repair_text(resolve_link(base, text)) if text else ""
    fields.links.append((rel, fields.link or None))
    if rel == "enclosure":
        fields.enclosures.append({**attributes, "href": fields.link or None})


def _on_enclosure(walker: DocumentWalker, element: Element, _depth: int) -> None:
    attributes = read_attributes(element)
    if "uri" in attributes or len(element):
        raise FeedparserRequired
    walker.fields.enclosures.append({**attributes, "href": attributes.get("url") or attributes.get("href")})


def _on_media_content(walker: DocumentWalker, element: Element, depth: int) -> None:
    walker.fields.media.append(read_attributes(element))
    _on_wrapper(walker, element, depth)


def _on_thumbnail(walker: DocumentWalker, element: Element, _depth: int) -> None:
    attributes = read_attributes(element)
    if element_text(element) and "url" not in attributes:  # to feedparser, the text is the URL
        raise FeedparserRequired
    walker.fields.thumbnails.append(attributes.get("url"))


def _on_itunes_image(walker: DocumentWalker, element: Element, depth: int) -> None:
    _ignore(walker, element, depth)
    attributes = read_attributes(element)
    walker.fields.image = attributes.get("href") or attributes.get("url") or walker.fields.image


def _on_duration(walker: DocumentWalker, element: Element, depth: int) -> None:
    text = element_text(element)
    if element.items():
        walker.fields.duration = ""
    elif walker.fields.accept("duration", depth):
        walker.fields.duration = repair_text(text)


def _on_published(walker: DocumentWalker, element: Element, _depth: int) -> None:
    walker.fields.published = parse_date(element_text(element))


def _on_updated(walker: DocumentWalker, element: Element, _depth: int) -> None:
    walker.fields.updated = parse_date(element_text(element))


def _on_category(walker: DocumentWalker, element: Element, _depth: int) -> None:
    attributes = read_attributes(element)
    term, label = attributes.get("term"), attributes.get("label")
    if label and not term:  # feedparser makes the text, or that of the next category, the term
        raise FeedparserRequired
    walker.fields.tags += (label or term, repair_text(element_text(element)))


def _on_itunes_category(walker: DocumentWalker, element: Element, depth: int) -> None:
    walker.fields.tags.append(read_attributes(element).get("text"))
    if not len(element):
        walker.fields.tags.append(repair_text(element_text(element)))
    elif walker.fields.is_entry or any(
        (text or "").strip() for text in (element.text, *(each.tail for each in element))
    ):
        raise FeedparserRequired
    else:
        walker.walk(element, depth + 1, {"itunes_category": _on_itunes_category})


def _on_keywords(walker: DocumentWalker, element: Element, _depth: int) -> None:
    if element.items():
        raise FeedparserRequired
    walker.fields.tags += (term.strip() for term in repair_text(element_text(element)).split(","))


def _on_author(walker: DocumentWalker, element: Element, depth: int) -> None:
    fields = walker.fields
    text = _person_name(walker, element) if len(element) else repair_text(element_text(element))
    if not fields.is_entry:
        return
    if fields.depths.setdefault("author", depth) != depth:
        raise FeedparserRequired
    if "@" in text and not len(element):
        found = _AUTHOR.fullmatch(text)
        if not found:
            raise FeedparserRequired
        text = found[2] or found[1]
    fields.authors.append(text)


def _person_name(walker: DocumentWalker, person: Element) -> str:
    """Return the name in an Atom person construct (RFC 4287 §3.2).

    Raises :class:`FeedparserRequired` if there is no name, because feedparser then uses the name of another person.
    """
    name = ""
    if (person.text or "").strip():
        raise FeedparserRequired
    for part in person:
        tag = walker.names[part.tag]
        if tag == "name":
            name = element_text(part)
        elif tag not in _PERSON_PARTS and ("_" not in tag or element_text(part)):
            raise FeedparserRequired
        if (part.tail or "").strip() or len(part):
            raise FeedparserRequired
    if not name:
        raise FeedparserRequired
    return name


def _on_ignored_parent(walker: DocumentWalker, element: Element, depth: int, *, parts: Collection[str]) -> None:
    """Ignore an element, such as ``source`` or ``image``, together with its children.

    ``parts`` are the names of the children that may be ignored. Any other child raises :class:`FeedparserRequired`. A
    title among the children is recorded, because it affects whether later titles are accepted.
    """
    if "title" in parts:
        walker.title_depth = -1
    for part in element:
        name = walker.names[part.tag]
        if name not in parts:
            raise FeedparserRequired
        if name == "author":
            _person_name(walker, part)
        elif element_text(part) and name == "title":
            walker.title_depth = depth + 1


def _on_language(walker: DocumentWalker, element: Element, _depth: int) -> None:
    walker.fields.language = repair_text(element_text(element))


def _on_generator(walker: DocumentWalker, element: Element, _depth: int) -> None:
    text = element_text(element)
    if "&" in text and ";" in text:
        raise FeedparserRequired
    walker.fields.generator = repair_text(text), read_attributes(element).get("version")


def _ignore(_walker: DocumentWalker, element: Element, _depth: int) -> None:
    """Ignore an element that has no children.

    Raises :class:`FeedparserRequired` if the element has children.
    """
    if len(element):
        raise FeedparserRequired


def _on_wrapper(walker: DocumentWalker, element: Element, depth: int) -> None:
    """Handle the children of a wrapper element as if they were children of the entry that contains it."""
    if not walker.fields.is_entry:
        raise FeedparserRequired
    based_here = _base_url(read_attributes(element), walker.base)
    if based_here != walker.base:
        raise FeedparserRequired
    walker.walk(element, depth + 1, _ENTRY_HANDLERS)


def _on_channel(walker: DocumentWalker, element: Element, depth: int) -> None:
    attributes, outside = read_attributes(element), walker.base
    if "lastmod" in attributes or "href" in attributes:  # CDF
        raise FeedparserRequired
    walker.base = _base_url(attributes, outside)
    walker.walk(element, depth + 1, FEED_HANDLERS)
    walker.base = outside


def _on_item(walker: DocumentWalker, element: Element, depth: int) -> None:
    if walker.skip_unchanged(element, depth):
        return
    attributes = read_attributes(element)
    if "lastmod" in attributes or "href" in attributes:  # CDF
        raise FeedparserRequired
    outside = walker.fields, walker.base
    walker.fields, walker.base = ParsedFields(is_entry=True), _base_url(attributes, walker.base)
    walker.fields.id = attributes.get("rdf:about", "")
    walker.entries.append(walker.fields)
    walker.title_depth = -1
    walker.walk(element, depth + 1, _ENTRY_HANDLERS)
    walker.has_content = False
    walker.fields, walker.base = outside


def _decline(*_: object) -> None:
    raise FeedparserRequired


# feedparser's result fields, which elements of these names would overwrite.
_RESULT_FIELDS = (
    "links", "authors", "author_detail", "contributors", "publisher_detail", "title_detail", "published_parsed",
    "updated_parsed", "guidislink",
)  # fmt: skip

_ENTRY_HANDLERS: dict[str, ElementHandler] = {
    **dict.fromkeys((*FEEDPARSER_ELEMENTS, *_RESULT_FIELDS, "svg", "math"), _decline),
    **dict.fromkeys(("title", "dc_title"), _on_title),
    **dict.fromkeys(
        ("description", "dc_description", "media_description"),
        partial(_on_summary, default="text/html", in_feeds=False),
    ),
    **dict.fromkeys(("summary", "itunes_summary"), partial(_on_summary, default="text/plain", in_feeds=True)),
    **dict.fromkeys(("id", "guid"), _on_id),
    **dict.fromkeys(("published", "issued", "pubdate", "dcterms_issued"), _on_published),
    **dict.fromkeys(("updated", "modified", "lastbuilddate", "dc_date", "dcterms_modified"), _on_updated),
    **dict.fromkeys(("category", "keywords", "dc_subject", "media_category"), _on_category),
    **dict.fromkeys(("author", "dc_author", "dc_creator", "itunes_author", "managingeditor"), _on_author),
    **dict.fromkeys(("language", "dc_language"), _on_language),
    "media_group": _on_wrapper,
    "media_content": _on_media_content,
    "media_thumbnail": _on_thumbnail,
    **dict.fromkeys(("itunes_image", "itunes_link"), _on_itunes_image),
    "itunes_duration": _on_duration,
    **dict.fromkeys(
        (
            "subtitle", "tagline", "rights", "copyright", "info", "webmaster", "dc_publisher", "dc_rights",
            "created", "dcterms_created", "dcterms_valid", "expirationdate", "name", "email", "url", "uri", "homepage",
            "width", "height", "cloud", "cc_license", "dc_contributor", "feedburner_browserfriendly",
            "itunes_subtitle", "itunes_block", "itunes_explicit", "media_credit", "media_rating",
            "media_license", "media_player", "media_restriction", "georss_point", "georss_line",
            "georss_polygon", "georss_box",
        ),
        _ignore,
    ),
    "generator": _on_generator,
    "media_title": _on_media_title,
    "content": _on_content,
    "content_encoded": partial(_on_content, default="text/html"),
    "link": _on_link,
    "enclosure": _on_enclosure,
    "itunes_category": _on_itunes_category,
    **dict.fromkeys(("itunes_keywords", "media_keywords"), _on_keywords),
    "source": partial(_on_ignored_parent, parts=_SOURCE_PARTS),
    "contributor": partial(_on_ignored_parent, parts={"name", *_PERSON_PARTS}),
}  # fmt: skip

FEED_HANDLERS: dict[str, ElementHandler] = {
    **_ENTRY_HANDLERS,
    **dict.fromkeys(("item", "entry"), _on_item),
    **dict.fromkeys(("image", "textinput"), partial(_on_ignored_parent, parts=_IMAGE_PARTS)),
    "itunes_owner": partial(_on_ignored_parent, parts={"itunes_name", "itunes_email"}),
    "source": _decline,
}

_BEFORE_CHANNEL: dict[str, ElementHandler] = dict.fromkeys((*FEED_HANDLERS, *_HINT_ELEMENTS), _decline)
_ROOT_HANDLERS: dict[str, dict[str, ElementHandler]] = {
    "rss": {**_BEFORE_CHANNEL, "channel": _on_channel},
    "feed": FEED_HANDLERS,
    "rdf_rdf": {
        **_BEFORE_CHANNEL,
        **{name: FEED_HANDLERS[name] for name in ("item", "image", "textinput")},
        "channel": _on_channel,
    },
}


def parse(text: str, *, url: str, language: str, previous: PreviousDocument | None = None) -> ParsedFeed | None:
    """Return the same feed as :func:`feedparser_adapter.parse`, or None if feedparser has to parse the document.

    - ``url`` is the URL from which the document was fetched.
    - ``language`` is the value of the ``Content-Language`` header.
    - ``previous`` contains the hashes of the previous document's entries. If it is given, the result may omit entries
      that have not changed. The result then usually contains a hash of each entry's XML, by which the next poll
      recognises unchanged entries.
    """
    if _DAMAGED in text:
        return None
    body = text.encode()
    entry_count = body.count(b"</item") + body.count(b"</entry")
    if b"<!DOCTYPE" in body or entry_count > _MAX_ENTRIES:
        return None
    is_hashed = entry_count <= MAX_HASHED_ENTRIES and body.count(b"xmlns") <= MAX_NAMESPACES
    hasher = ElementHasher(previous, len(body)) if previous and is_hashed else None
    try:
        root = etree.fromstring(body, new_xml_parser())
        with contextlib.suppress(FullParseRequired):
            return _feed(root, text, url, language, hasher)
        return _feed(root, text, url, language, None)
    except (FeedparserRequired, etree.XMLSyntaxError, RecursionError):
        return None


def _feed(root: Element, text: str, url: str, language: str, hasher: ElementHasher | None) -> ParsedFeed:
    names, attributes = ElementNames(text), read_attributes(root)
    kind = names[root.tag]
    is_atom = kind == "feed"
    if kind not in _ROOT_HANDLERS or (is_atom and root.tag != _ATOM_FEED):
        raise FeedparserRequired
    if names.is_atom is not is_atom and kind != "rss":
        raise FeedparserRequired
    stated = attributes.get("xml:lang", attributes.get("lang")) if kind != "rdf_rdf" else None
    about = ParsedFields(is_entry=False, language=(stated or language).replace("_", "-"))
    walker = DocumentWalker(
        names, is_atom=is_atom, base=_base_url(attributes, urljoin(url, url)), fields=about, hasher=hasher
    )
    walker.walk(root, 2, _ROOT_HANDLERS[kind])
    title = title_line(about.title[:TEXT_CHARS], is_markup="html" in about.title_type)
    link = absolute_link(about.link, url)
    element_hashes = hasher.finish(site_hash(url, link)) if hasher else ()
    if not walker.entries and not element_hashes and not title and not link:
        raise FeedparserRequired
    return ParsedFeed(
        title=title,
        link=link,
        id=about.id[:FIELD_CHARS].strip(),
        language=about.language[:NAME_CHARS].strip(),
        entries=tuple(_entry(each, url) for each in newest_entries(walker.entries, _date_s)),
        polling_hints=read_polling_hints(text, about.hints),
        **read_link_relations(about.links, url),
        element_hashes=element_hashes,
        metadata=read_metadata(about.tags, *about.generator),
    )


def _entry(fields: ParsedFields, url: str) -> ParsedEntry:
    contents = [content[:TEXT_CHARS].strip() for content in fields.contents]
    files: list[Mapping[str, object]] = [*fields.enclosures, *fields.media]
    enclosures, image = read_files(files, (*fields.thumbnails, fields.image), url, duration=fields.duration)
    return ParsedEntry(
        id=fields.id[:FIELD_CHARS].strip(),
        link=absolute_link(fields.link, url),
        title=title_line(fields.title[:TEXT_CHARS], is_markup="html" in fields.title_type),
        summary=(fields.summary or "")[:TEXT_CHARS].strip(),
        content=max(contents, key=len) if contents else "",
        authors=unique_names(fields.authors),
        tags=unique_names(fields.tags),
        published=fields.published,
        updated=fields.updated,
        enclosure=absolute_link(fields.enclosures[0]["href"], url) if fields.enclosures else "",
        enclosures=enclosures,
        image=image,
    )


def _date_s(fields: ParsedFields) -> float | None:
    return fields.published or fields.updated
