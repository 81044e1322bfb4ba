"""A walk through a well-formed feed: what its elements mean to feedparser, one function for each kind of element.

feedparser's ways are odd in places: a second description is content, an empty link is a link, the first title
counts unless a deeper one came before. They are followed here, because what a document says must not depend
on who reads it; where that would take more than a line or two, the document is declined.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from service.feeds.entries.unchanged_entries import ElementHasher, FullParseRequired
from service.feeds.parsing.fast_parser_values import (
    Declined,
    Element,
    Names,
    address,
    attributes,
    looks_like_html,
    mended,
    prose,
    text_of,
    time_s,
)
from service.feeds.parsing.limits import ABSOLUTE_URL

_HTML = ("text/html", "application/xhtml+xml")
_PERSON_PARTS = {"email", "uri", "url", "homepage"}
_SOURCE_PARTS = {"id", "title", "updated", "link", "subtitle", "rights", "generator", "icon", "logo", "category"}
_PICTURE_PARTS = {"title", "url", "link", "description", "width", "height", "name"}
_MEDIA_SCHEME = "http://search.yahoo.com/mrss/category_schema"
_ITUNES_SCHEME = "http://www.itunes.com/"
_AUTHOR = re.compile(r"([a-zA-Z0-9_.+-]+@(?:[a-zA-Z0-9-]+\.)+[a-zA-Z]{2,4})(?: \(([^()@<>&]*[^()@<>&\s])\))?")

Tag = tuple[str | None, str | None, str | None]
"""A category: its term, scheme and label, any of which may be missing or empty."""


class Tags:
    """The categories so far."""

    __slots__ = ("_known", "_listed")

    def __init__(self) -> None:
        self._listed: list[Tag] = []
        self._known: set[Tag] = set()

    def names(self) -> list[str | None]:
        """Return what people call them."""
        return [label or term for term, _, label in self._listed]

    def add(self, tag: Tag) -> None:
        """Add a category that says anything and is not there yet."""
        if tag not in self._known and any(tag):
            self._known.add(tag)
            self._listed.append(tag)

    def take_in(self, tag: Tag, text: str) -> None:
        """Add an element's category; its text is the term that the last category lacks, or another category."""
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


_UNREAD = -2
HINTS = {"ttl", "sy_updateperiod", "sy_updatefrequency"}


@dataclass(slots=True, eq=False)
class Fields:
    """What an entry, or the feed itself, has said so far. ``depths``: how deep in the document it said it."""

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

    def may_say(self, name: str, depth: int) -> bool:
        """Say whether what stands at this depth replaces what was said before: in an entry, not what is deeper."""
        if self.is_entry and depth > self.depths.get(name, depth):
            return False
        self.depths[name] = depth
        return True


class Reader:
    """One walk through a document. ``fields`` and ``base`` are those of the innermost entry or feed.

    If there are ``marks``, it goes past entries that are familiar.
    """

    def __init__(
        self, names: Names, *, speaks_atom: bool, base: str, fields: Fields, hasher: ElementHasher | None
    ) -> None:
        self.names = names
        self.hasher = hasher
        self.speaks_atom = speaks_atom
        self._dialect = " Atom " if speaks_atom else " RSS "
        self.base = base
        self.fields = fields
        self.entries: list[Fields] = []
        self.title_depth = -1
        self.has_content = False

    def read(self, parent: Element, depth: int, meanings: dict[str, "Meaning"]) -> None:
        """Take in the children of ``parent``, which stand at ``depth``."""
        names = self.names
        for element in parent:
            name = names[element.tag]
            meaning = meanings.get(name)
            if meaning:
                meaning(self, element, depth)
            elif name in HINTS or len(element):
                self._pass_over(element, depth, name, meanings)

    def skip_unchanged(self, element: Element, depth: int) -> bool:
        """Say whether to go past an entry. Whether its title counts for those that come after it is not known then."""
        if not self.hasher or not self.hasher.skip_unchanged(element, f"{depth}{self._dialect}{self.base}"):
            return False
        self.title_depth = _UNREAD
        return True

    def title_counts(self, depth: int) -> bool:
        """Say whether a title counts: not if one that is no deeper has come before. Raises :class:`Unread`."""
        if self.title_depth == _UNREAD:
            raise FullParseRequired
        return not -1 < self.title_depth <= depth

    def _pass_over(self, element: Element, depth: int, name: str, meanings: dict[str, "Meaning"]) -> None:
        """Go on within an element that means nothing to feedparser."""
        if name in HINTS:
            self.fields.hints[name] = "" if element.items() else mended(text_of(element))
        if len(element):
            if based(attributes(element), self.base) != self.base:
                raise Declined
            self.read(element, depth + 1, meanings)


Meaning = Callable[[Reader, Element, int], None]
"""Takes in an element that stands at a depth."""


def based(found: dict[str, str], base: str) -> str:
    """Return the base of links within an element that has these attributes."""
    given = found.get("xml:base", found.get("base"))
    if given and not ABSOLUTE_URL.fullmatch(given):
        raise Declined
    return given or base


def _title(reader: Reader, element: Element, depth: int) -> None:
    fields = reader.fields
    value, kind = prose(reader.names, element, "text/plain", may_be_xhtml=reader.speaks_atom)
    if kind == "text/plain" and not reader.speaks_atom and looks_like_html(value):
        kind = "text/html"
    value = mended(value)
    if reader.title_counts(depth):
        if fields.may_say("title", depth):
            fields.title = value
        fields.title_type = kind
    if value:
        reader.title_depth = depth


def _media_title(reader: Reader, element: Element, depth: int) -> None:
    kept = reader.title_depth
    _title(reader, element, depth)
    reader.title_depth = kept


def _summary(default: str, *, of_feeds: bool) -> Meaning:
    def meaning(reader: Reader, element: Element, depth: int) -> None:
        fields = reader.fields
        if fields.summary is not None and not reader.has_content:
            _content(reader, element, depth)
            return
        value, _ = prose(reader.names, element, default, may_be_xhtml=reader.speaks_atom)
        if (fields.is_entry or of_feeds) and fields.may_say("summary", depth):
            fields.summary = mended(value)

    return meaning


def _content(reader: Reader, element: Element, _depth: int, default: str = "text/plain") -> None:
    fields = reader.fields
    if not fields.is_entry:
        raise Declined
    reader.has_content = True
    value = mended(prose(reader.names, element, default, may_be_xhtml=reader.speaks_atom)[0])
    fields.contents.append(value)
    if fields.summary is None:
        fields.summary = value


def _content_encoded(reader: Reader, element: Element, depth: int) -> None:
    _content(reader, element, depth, "text/html")


def _id(reader: Reader, element: Element, depth: int) -> None:
    fields, found = reader.fields, attributes(element)
    is_link = found.get("ispermalink", "true") == "true"
    value = text_of(element)
    if value and is_link:
        value = address(based(found, reader.base), value)
    value = mended(value)
    if fields.may_say("id", depth):
        fields.id = value
    if is_link and fields.link is None:
        fields.link = value


def _link(reader: Reader, element: Element, _depth: int) -> None:
    fields, found = reader.fields, attributes(element)
    base = based(found, reader.base)
    rel = found.get("rel", "alternate")
    if "url" in found or "uri" in found or found.get("href") == "" or len(element):
        raise Declined
    if "href" in found:
        href = address(base, found["href"])
        fields.links.append((rel, href))
        kind = found.get("type", "application/atom+xml" if rel == "self" else "text/html")
        if rel == "alternate" and kind in ("html", "xhtml", *_HTML):
            fields.link = href
        return
    text = text_of(element)
    if "&" in text and ";" in text:
        raise Declined
    fields.link = mended(address(base, text)) if text else ""
    fields.links.append((rel, fields.link or None))


def _enclosure(reader: Reader, element: Element, _depth: int) -> None:
    found = attributes(element)
    if "uri" in found or len(element):
        raise Declined
    reader.fields.links.append(("enclosure", found.get("url") or found.get("href")))


def _published(reader: Reader, element: Element, _depth: int) -> None:
    if reader.fields.is_entry:
        reader.fields.published = time_s(text_of(element))


def _updated(reader: Reader, element: Element, _depth: int) -> None:
    if reader.fields.is_entry:
        reader.fields.updated = time_s(text_of(element))


def _category(reader: Reader, element: Element, _depth: int) -> None:
    found = attributes(element)
    tag = found.get("term"), found.get("scheme", found.get("domain")), found.get("label")
    reader.fields.tags.take_in(tag, mended(text_of(element)))


def _media_category(reader: Reader, element: Element, _depth: int) -> None:
    found = attributes(element)
    tag = found.get("term"), found.get("scheme", _MEDIA_SCHEME), found.get("label")
    reader.fields.tags.take_in(tag, mended(text_of(element)))


def _itunes_category(reader: Reader, element: Element, depth: int) -> None:
    tag = attributes(element).get("text"), _ITUNES_SCHEME, None
    if not len(element):
        reader.fields.tags.take_in(tag, mended(text_of(element)))
    elif reader.fields.is_entry or any(
        (text or "").strip() for text in (element.text, *(each.tail for each in element))
    ):
        raise Declined
    else:
        reader.fields.tags.take_in(tag, "")
        reader.read(element, depth + 1, {"itunes_category": _itunes_category})


def _keywords(scheme: str | None) -> Meaning:
    def meaning(reader: Reader, element: Element, _depth: int) -> None:
        if element.items():
            raise Declined
        for term in mended(text_of(element)).split(","):
            if term.strip():
                reader.fields.tags.add((term.strip(), scheme, None))

    return meaning


def _author(reader: Reader, element: Element, depth: int) -> None:
    fields = reader.fields
    text = _name(reader, element) if len(element) else mended(text_of(element))
    if not fields.is_entry:
        return
    if fields.depths.setdefault("author", depth) != depth:
        raise Declined
    if "@" in text and not len(element):
        found = _AUTHOR.fullmatch(text)
        if not found:
            raise Declined
        text = found[2] or found[1]
    fields.authors.append(text)


def _name(reader: Reader, person: Element) -> str:
    """Return the name of an Atom person; without one, feedparser would name somebody else."""
    name = ""
    if (person.text or "").strip():
        raise Declined
    for part in person:
        tag = reader.names[part.tag]
        if tag == "name":
            name = text_of(part)
        elif tag not in _PERSON_PARTS and ("_" not in tag or text_of(part)):
            raise Declined
        if (part.tail or "").strip() or len(part):
            raise Declined
    if not name:
        raise Declined
    return name


def _contributor(reader: Reader, element: Element, _depth: int) -> None:
    _name(reader, element)


def _source(reader: Reader, element: Element, depth: int) -> None:
    """Leave out where the entry was taken from; only that its titles count anew afterwards."""
    if not reader.fields.is_entry:
        raise Declined
    reader.title_depth = -1
    for part in element:
        name = reader.names[part.tag]
        if name == "author":
            _name(reader, part)
        elif name not in _SOURCE_PARTS:
            raise Declined
        elif text_of(part) and name == "title":
            reader.title_depth = depth + 1


def _picture(reader: Reader, element: Element, depth: int) -> None:
    """Leave out an image or a search field; only that its title comes before those that are deeper."""
    reader.title_depth = -1
    for part in element:
        name = reader.names[part.tag]
        if name not in _PICTURE_PARTS:
            raise Declined
        if text_of(part) and name == "title":
            reader.title_depth = depth + 1


def _owner(reader: Reader, element: Element, _depth: int) -> None:
    """Leave out whose podcast it is."""
    if any(reader.names[part.tag] not in ("itunes_name", "itunes_email") or len(part) for part in element):
        raise Declined


def _language(reader: Reader, element: Element, _depth: int) -> None:
    reader.fields.language = mended(text_of(element))


def _generator(reader: Reader, element: Element, _depth: int) -> None:
    text = text_of(element)
    if "&" in text and ";" in text:
        raise Declined
    if not reader.fields.is_entry:
        reader.fields.generator = mended(text), attributes(element).get("version")


def _plain(_reader: Reader, element: Element, _depth: int) -> None:
    """Leave out what is known and not needed."""
    if len(element):
        raise Declined


def _wrapper(reader: Reader, element: Element, depth: int) -> None:
    """Take in what stands within, as if it stood outside."""
    based_here = based(attributes(element), reader.base)
    if based_here != reader.base:
        raise Declined
    reader.read(element, depth + 1, ENTRY)


def _channel(reader: Reader, element: Element, depth: int) -> None:
    found, outside = attributes(element), reader.base
    if "lastmod" in found or "href" in found:  # CDF
        raise Declined
    reader.base = based(found, outside)
    reader.read(element, depth + 1, FEED)
    reader.base = outside


def _item(reader: Reader, element: Element, depth: int) -> None:
    if reader.skip_unchanged(element, depth):
        return
    found = attributes(element)
    if "lastmod" in found or "href" in found:  # CDF
        raise Declined
    outside = reader.fields, reader.base
    reader.fields, reader.base = Fields(is_entry=True), based(found, reader.base)
    reader.fields.id = found.get("rdf:about", "")
    reader.entries.append(reader.fields)
    reader.title_depth = -1
    reader.read(element, depth + 1, ENTRY)
    reader.has_content = False
    reader.fields, reader.base = outside


def _decline(*_: object) -> None:
    raise Declined


ENTRY: dict[str, Meaning] = {
    **dict.fromkeys(("title", "dc_title"), _title),
    **dict.fromkeys(("description", "dc_description", "media_description"), _summary("text/html", of_feeds=False)),
    **dict.fromkeys(("summary", "itunes_summary"), _summary("text/plain", of_feeds=True)),
    **dict.fromkeys(("id", "guid"), _id),
    **dict.fromkeys(("published", "issued", "pubdate", "dcterms_issued"), _published),
    **dict.fromkeys(("updated", "modified", "lastbuilddate", "dc_date", "dcterms_modified"), _updated),
    **dict.fromkeys(("category", "keywords", "dc_subject"), _category),
    **dict.fromkeys(("author", "dc_author", "dc_creator", "itunes_author", "managingeditor"), _author),
    **dict.fromkeys(("language", "dc_language"), _language),
    **dict.fromkeys(("media_group", "media_content"), _wrapper),
    **dict.fromkeys(
        (
            "subtitle", "tagline", "rights", "copyright", "info", "webmaster", "dc_publisher", "dc_rights",
            "created", "dcterms_created", "dcterms_valid", "expirationdate", "name", "email", "url", "uri", "homepage",
            "width", "height", "cloud", "cc_license", "dc_contributor", "feedburner_browserfriendly", "itunes_image",
            "itunes_link", "itunes_subtitle", "itunes_block", "itunes_explicit", "media_credit", "media_rating",
            "media_license", "media_player", "media_restriction", "media_thumbnail", "georss_point", "georss_line",
            "georss_polygon", "georss_box",
        ),
        _plain,
    ),
    **dict.fromkeys(
        (
            "abstract", "body", "xhtml_body", "fullitem", "tags", "where", "georss_where", "newlocation", "rss",
            "channel", "feed", "item", "entry", "image", "textinput", "itunes_owner", "itunes_name", "itunes_email",
            "georssgeom", "geom", "gml_exterior", "gml_linearring", "gml_linestring", "gml_point", "gml_polygon",
            "gml_pos", "gml_poslist", "psc_chapter", "psc_chapters", "creativecommons_license",
            # Fields of feedparser's own, into which it would write what stands there.
            "links", "authors", "author_detail", "contributors", "publisher_detail", "title_detail",
            "published_parsed", "updated_parsed", "guidislink", "svg", "math",
        ),
        _decline,
    ),
    "generator": _generator,
    "media_title": _media_title,
    "content": _content,
    "content_encoded": _content_encoded,
    "link": _link,
    "enclosure": _enclosure,
    "media_category": _media_category,
    "itunes_category": _itunes_category,
    "itunes_keywords": _keywords(_ITUNES_SCHEME),
    "media_keywords": _keywords(None),
    "source": _source,
    "contributor": _contributor,
}  # fmt: skip

FEED: dict[str, Meaning] = {
    **ENTRY,
    **dict.fromkeys(("item", "entry"), _item),
    **dict.fromkeys(("image", "textinput"), _picture),
    "itunes_owner": _owner,
}

_OUTSIDE: dict[str, Meaning] = dict.fromkeys((*FEED, *HINTS), _decline)
ROOTS: dict[str, dict[str, Meaning]] = {
    "rss": {**_OUTSIDE, "channel": _channel},
    "feed": FEED,
    "rdf_rdf": {**_OUTSIDE, "channel": _channel, "item": _item, "image": _picture, "textinput": _picture},
}
