"""The element handlers of the fast parser: one function for each kind of element in a well-formed feed.

The handlers reproduce feedparser's results, including its peculiarities: a second description becomes content, an empty
link counts as a link, and the first title is used unless a deeper title came before. Where reproducing feedparser would
take more than a line or two, a handler raises :class:`FeedparserRequired`, and feedparser parses the document.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from service.feeds.entries.unchanged_entries import ElementHasher, FullParseRequired
from service.feeds.parsing.fast_parser_values import (
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
from service.feeds.parsing.limits import ABSOLUTE_URL

_HTML = ("text/html", "application/xhtml+xml")
_PERSON_PARTS = {"email", "uri", "url", "homepage"}
_SOURCE_PARTS = {"id", "title", "updated", "link", "subtitle", "rights", "generator", "icon", "logo", "category"}
_IMAGE_PARTS = {"title", "url", "link", "description", "width", "height", "name"}
_MEDIA_SCHEME = "http://search.yahoo.com/mrss/category_schema"
_ITUNES_SCHEME = "http://www.itunes.com/"
_AUTHOR = re.compile(r"([a-zA-Z0-9_.+-]+@(?:[a-zA-Z0-9-]+\.)+[a-zA-Z]{2,4})(?: \(([^()@<>&]*[^()@<>&\s])\))?")

Tag = tuple[str | None, str | None, str | None]
"""The term, scheme and label of a category, each of which may be missing or empty."""


class Tags:
    """The distinct categories of an entry or a feed, in document order."""

    __slots__ = ("_known", "_listed")

    def __init__(self) -> None:
        self._listed: list[Tag] = []
        self._known: set[Tag] = set()

    def names(self) -> list[str | None]:
        """Return the label of each category, or its term if it has no label."""
        return [label or term for term, _, label in self._listed]

    def add(self, tag: Tag) -> None:
        """Add a category unless it is empty or already in the list."""
        if tag not in self._known and any(tag):
            self._known.add(tag)
            self._listed.append(tag)

    def add_element(self, tag: Tag, text: str) -> None:
        """Add the category in an element's attributes, and the category in the element's text.

        If the last category has no term, the text becomes its term. Otherwise the text is a separate category.
        """
        if any(tag):
            self.add(tag)
        if not text:
            return
        if self._listed and not self._listed[-1][0]:
            lacking = self._listed.pop()
            self._known.discard(lacking)
            self._listed.append((text, *lacking[1:]))
            self._known.add(self._listed[-1])
        else:
            self.add((text, None, None))


_UNKNOWN_DEPTH = -2
HINT_ELEMENTS = {"ttl", "sy_updateperiod", "sy_updatefrequency"}


@dataclass(slots=True, eq=False)
class ParsedFields:
    """The values of an entry or of the feed that have been read so far.

    ``depths`` has, for each field, the depth in the document tree of the element with its value.
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
    tags: Tags = field(default_factory=Tags)
    links: list[tuple[str, str | None]] = field(default_factory=list)
    hints: dict[str, str] = field(default_factory=dict)
    generator: tuple[str, str | None] = ("", None)
    published: float | None = None
    updated: float | None = None
    depths: dict[str, int] = field(default_factory=dict)

    def accept(self, name: str, depth: int) -> bool:
        """Return whether a value of the field ``name`` at ``depth`` replaces the previous value.

        If it does, ``depth`` is recorded. In an entry, a deeper value does not replace one that is less deep.
        """
        if self.is_entry and depth > self.depths.get(name, depth):
            return False
        self.depths[name] = depth
        return True


class DocumentWalker:
    """Walks through one document and calls the handler of each element.

    ``fields`` are the values of the innermost entry or feed, and ``base`` is its base URL. ``entries`` are the entries
    read so far. ``title_depth`` is the depth of the last title that was not empty; -1 means that there is none. With a
    ``hasher``, entries that are unchanged since the previous document are skipped.
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
        """Call the handlers of the children of ``parent``; ``depth`` is the depth of these children.

        ``handlers`` are given by element name. The walk descends into elements without a handler.
        """
        names = self.names
        for element in parent:
            name = names[element.tag]
            handler = handlers.get(name)
            if handler:
                handler(self, element, depth)
            elif name in HINT_ELEMENTS or len(element):
                self._descend(element, depth, name, handlers)

    def skip_unchanged(self, element: Element, depth: int) -> bool:
        """Return whether the entry in ``element`` is unchanged since the previous document, and is therefore skipped.

        The title of a skipped entry is not read, although it affects whether feedparser accepts a later title.
        Therefore :meth:`accepts_title` raises an error from then on, until a title's depth is known again.
        """
        if not self.hasher or not self.hasher.skip_unchanged(element, f"{depth}{self._dialect}{self.base}"):
            return False
        self.title_depth = _UNKNOWN_DEPTH
        return True

    def accepts_title(self, depth: int) -> bool:
        """Return whether feedparser accepts a title at ``depth``.

        It does not if an earlier title was at the same or a lesser depth. Raises :class:`FullParseRequired` if the
        depth of the earlier title is unknown, because its entry was skipped.
        """
        if self.title_depth == _UNKNOWN_DEPTH:
            raise FullParseRequired
        return not -1 < self.title_depth <= depth

    def _descend(self, element: Element, depth: int, name: str, handlers: dict[str, "ElementHandler"]) -> None:
        """Walk through the children of an element that has no handler.

        If the element is a polling hint, its text is recorded. ``name`` is feedparser's name of the element, and
        ``depth`` is its depth.
        """
        if name in HINT_ELEMENTS:
            self.fields.hints[name] = "" if element.items() else repair_text(element_text(element))
        if len(element):
            if base_url(read_attributes(element), self.base) != self.base:
                raise FeedparserRequired
            self.walk(element, depth + 1, handlers)


ElementHandler = Callable[[DocumentWalker, Element, int], None]
"""Handles an element at a depth: stores its values in the walker's ``fields``, or raises FeedparserRequired."""


def base_url(found: dict[str, str], base: str) -> str:
    """Return the base URL of links within an element.

    ``found`` are the element's attributes. ``base`` is the base URL of the element's parent.
    """
    given = found.get("xml:base", found.get("base"))
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


def _summary_handler(default: str, *, in_feeds: bool) -> ElementHandler:
    def handler(walker: DocumentWalker, element: Element, depth: int) -> None:
        fields = walker.fields
        if fields.summary is not None and not walker.has_content:
            _on_content(walker, element, depth)
            return
        value, _ = read_text_construct(walker.names, element, default, may_be_xhtml=walker.is_atom)
        if (fields.is_entry or in_feeds) and fields.accept("summary", depth):
            fields.summary = repair_text(value)

    return handler


def _on_content(walker: DocumentWalker, element: Element, _depth: int, default: str = "text/plain") -> None:
    fields = walker.fields
    if not fields.is_entry:
        raise FeedparserRequired
    walker.has_content = True
    value = repair_text(read_text_construct(walker.names, element, default, may_be_xhtml=walker.is_atom)[0])
    fields.contents.append(value)
    if fields.summary is None:
        fields.summary = value


def _on_content_encoded(walker: DocumentWalker, element: Element, depth: int) -> None:
    _on_content(walker, element, depth, "text/html")


def _on_id(walker: DocumentWalker, element: Element, depth: int) -> None:
    fields, found = walker.fields, read_attributes(element)
    is_link = found.get("ispermalink", "true") == "true"
    value = element_text(element)
    if value and is_link:
        value = resolve_link(base_url(found, walker.base), value)
    value = repair_text(value)
    if fields.accept("id", depth):
        fields.id = value
    if is_link and fields.link is None:
        fields.link = value


def _on_link(walker: DocumentWalker, element: Element, _depth: int) -> None:
    fields, found = walker.fields, read_attributes(element)
    base = base_url(found, walker.base)
    rel = found.get("rel", "alternate")
    if "url" in found or "uri" in found or found.get("href") == "" or len(element):
        raise FeedparserRequired
    if "href" in found:
        href = resolve_link(base, found["href"])
        fields.links.append((rel, href))
        kind = found.get("type", "application/atom+xml" if rel == "self" else "text/html")
        if rel == "alternate" and kind in ("html", "xhtml", *_HTML):
            fields.link = href
        return
    text = element_text(element)
    if "&" in text and ";" in text:
        raise FeedparserRequired
    fields.link = repair_text(resolve_link(base, text)) if text else ""
    fields.links.append((rel, fields.link or None))


def _on_enclosure(walker: DocumentWalker, element: Element, _depth: int) -> None:
    found = read_attributes(element)
    if "uri" in found or len(element):
        raise FeedparserRequired
    walker.fields.links.append(("enclosure", found.get("url") or found.get("href")))


def _on_published(walker: DocumentWalker, element: Element, _depth: int) -> None:
    if walker.fields.is_entry:
        walker.fields.published = parse_date(element_text(element))


def _on_updated(walker: DocumentWalker, element: Element, _depth: int) -> None:
    if walker.fields.is_entry:
        walker.fields.updated = parse_date(element_text(element))


def _on_category(walker: DocumentWalker, element: Element, _depth: int) -> None:
    found = read_attributes(element)
    tag = found.get("term"), found.get("scheme", found.get("domain")), found.get("label")
    walker.fields.tags.add_element(tag, repair_text(element_text(element)))


def _on_media_category(walker: DocumentWalker, element: Element, _depth: int) -> None:
    found = read_attributes(element)
    tag = found.get("term"), found.get("scheme", _MEDIA_SCHEME), found.get("label")
    walker.fields.tags.add_element(tag, repair_text(element_text(element)))


def _on_itunes_category(walker: DocumentWalker, element: Element, depth: int) -> None:
    tag = read_attributes(element).get("text"), _ITUNES_SCHEME, None
    if not len(element):
        walker.fields.tags.add_element(tag, repair_text(element_text(element)))
    elif walker.fields.is_entry or any(
        (text or "").strip() for text in (element.text, *(each.tail for each in element))
    ):
        raise FeedparserRequired
    else:
        walker.fields.tags.add_element(tag, "")
        walker.walk(element, depth + 1, {"itunes_category": _on_itunes_category})


def _keywords_handler(scheme: str | None) -> ElementHandler:
    def handler(walker: DocumentWalker, element: Element, _depth: int) -> None:
        if element.items():
            raise FeedparserRequired
        for term in repair_text(element_text(element)).split(","):
            if term.strip():
                walker.fields.tags.add((term.strip(), scheme, None))

    return handler


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


def _on_contributor(walker: DocumentWalker, element: Element, _depth: int) -> None:
    _person_name(walker, element)


def _on_source(walker: DocumentWalker, element: Element, depth: int) -> None:
    """Ignore the element with the feed from which the entry was copied.

    Its title still affects whether later titles are accepted.
    """
    if not walker.fields.is_entry:
        raise FeedparserRequired
    walker.title_depth = -1
    for part in element:
        name = walker.names[part.tag]
        if name == "author":
            _person_name(walker, part)
        elif name not in _SOURCE_PARTS:
            raise FeedparserRequired
        elif element_text(part) and name == "title":
            walker.title_depth = depth + 1


def _on_image(walker: DocumentWalker, element: Element, depth: int) -> None:
    """Ignore an image or a text input element.

    Its title still affects whether later titles are accepted.
    """
    walker.title_depth = -1
    for part in element:
        name = walker.names[part.tag]
        if name not in _IMAGE_PARTS:
            raise FeedparserRequired
        if element_text(part) and name == "title":
            walker.title_depth = depth + 1


def _on_itunes_owner(walker: DocumentWalker, element: Element, _depth: int) -> None:
    """Ignore the element with the owner of a podcast."""
    if any(walker.names[part.tag] not in ("itunes_name", "itunes_email") or len(part) for part in element):
        raise FeedparserRequired


def _on_language(walker: DocumentWalker, element: Element, _depth: int) -> None:
    walker.fields.language = repair_text(element_text(element))


def _on_generator(walker: DocumentWalker, element: Element, _depth: int) -> None:
    text = element_text(element)
    if "&" in text and ";" in text:
        raise FeedparserRequired
    if not walker.fields.is_entry:
        walker.fields.generator = repair_text(text), read_attributes(element).get("version")


def _ignore(_reader: DocumentWalker, element: Element, _depth: int) -> None:
    """Ignore an element whose value is not used."""
    if len(element):
        raise FeedparserRequired


def _on_wrapper(walker: DocumentWalker, element: Element, depth: int) -> None:
    """Handle the children of a wrapper element as if they were not wrapped."""
    based_here = base_url(read_attributes(element), walker.base)
    if based_here != walker.base:
        raise FeedparserRequired
    walker.walk(element, depth + 1, ENTRY_HANDLERS)


def _on_channel(walker: DocumentWalker, element: Element, depth: int) -> None:
    found, outside = read_attributes(element), walker.base
    if "lastmod" in found or "href" in found:  # CDF
        raise FeedparserRequired
    walker.base = base_url(found, outside)
    walker.walk(element, depth + 1, FEED_HANDLERS)
    walker.base = outside


def _on_item(walker: DocumentWalker, element: Element, depth: int) -> None:
    if walker.skip_unchanged(element, depth):
        return
    found = read_attributes(element)
    if "lastmod" in found or "href" in found:  # CDF
        raise FeedparserRequired
    outside = walker.fields, walker.base
    walker.fields, walker.base = ParsedFields(is_entry=True), base_url(found, walker.base)
    walker.fields.id = found.get("rdf:about", "")
    walker.entries.append(walker.fields)
    walker.title_depth = -1
    walker.walk(element, depth + 1, ENTRY_HANDLERS)
    walker.has_content = False
    walker.fields, walker.base = outside


def _decline(*_: object) -> None:
    raise FeedparserRequired


ENTRY_HANDLERS: dict[str, ElementHandler] = {
    **dict.fromkeys(("title", "dc_title"), _on_title),
    **dict.fromkeys(
        ("description", "dc_description", "media_description"), _summary_handler("text/html", in_feeds=False)
    ),
    **dict.fromkeys(("summary", "itunes_summary"), _summary_handler("text/plain", in_feeds=True)),
    **dict.fromkeys(("id", "guid"), _on_id),
    **dict.fromkeys(("published", "issued", "pubdate", "dcterms_issued"), _on_published),
    **dict.fromkeys(("updated", "modified", "lastbuilddate", "dc_date", "dcterms_modified"), _on_updated),
    **dict.fromkeys(("category", "keywords", "dc_subject"), _on_category),
    **dict.fromkeys(("author", "dc_author", "dc_creator", "itunes_author", "managingeditor"), _on_author),
    **dict.fromkeys(("language", "dc_language"), _on_language),
    **dict.fromkeys(("media_group", "media_content"), _on_wrapper),
    **dict.fromkeys(
        (
            "subtitle", "tagline", "rights", "copyright", "info", "webmaster", "dc_publisher", "dc_rights",
            "created", "dcterms_created", "dcterms_valid", "expirationdate", "name", "email", "url", "uri", "homepage",
            "width", "height", "cloud", "cc_license", "dc_contributor", "feedburner_browserfriendly", "itunes_image",
            "itunes_link", "itunes_subtitle", "itunes_block", "itunes_explicit", "media_credit", "media_rating",
            "media_license", "media_player", "media_restriction", "media_thumbnail", "georss_point", "georss_line",
            "georss_polygon", "georss_box",
        ),
        _ignore,
    ),
    **dict.fromkeys(
        (
            "abstract", "body", "xhtml_body", "fullitem", "tags", "where", "georss_where", "newlocation", "rss",
            "channel", "feed", "item", "entry", "image", "textinput", "itunes_owner", "itunes_name", "itunes_email",
            "georssgeom", "geom", "gml_exterior", "gml_linearring", "gml_linestring", "gml_point", "gml_polygon",
            "gml_pos", "gml_poslist", "psc_chapter", "psc_chapters", "creativecommons_license",
            # Names of feedparser's result fields, which it would overwrite with the text of such elements.
            "links", "authors", "author_detail", "contributors", "publisher_detail", "title_detail",
            "published_parsed", "updated_parsed", "guidislink", "svg", "math",
        ),
        _decline,
    ),
    "generator": _on_generator,
    "media_title": _on_media_title,
    "content": _on_content,
    "content_encoded": _on_content_encoded,
    "link": _on_link,
    "enclosure": _on_enclosure,
    "media_category": _on_media_category,
    "itunes_category": _on_itunes_category,
    "itunes_keywords": _keywords_handler(_ITUNES_SCHEME),
    "media_keywords": _keywords_handler(None),
    "source": _on_source,
    "contributor": _on_contributor,
}  # fmt: skip

FEED_HANDLERS: dict[str, ElementHandler] = {
    **ENTRY_HANDLERS,
    **dict.fromkeys(("item", "entry"), _on_item),
    **dict.fromkeys(("image", "textinput"), _on_image),
    "itunes_owner": _on_itunes_owner,
}

_BEFORE_CHANNEL: dict[str, ElementHandler] = dict.fromkeys((*FEED_HANDLERS, *HINT_ELEMENTS), _decline)
ROOT_HANDLERS: dict[str, dict[str, ElementHandler]] = {
    "rss": {**_BEFORE_CHANNEL, "channel": _on_channel},
    "feed": FEED_HANDLERS,
    "rdf_rdf": {
        **_BEFORE_CHANNEL,
        "channel": _on_channel,
        "item": _on_item,
        "image": _on_image,
        "textinput": _on_image,
    },
}
