"""Reads the files attached to an entry (its enclosures), and the entry's image.

A parser passes the values as it found them: a mapping for each file, with the attributes of an RSS ``enclosure``, an
Atom ``link``, a Media RSS ``media:content``, or an attachment of JSON Feed. Names of attributes are in lower case.
"""

import math
import re
from collections.abc import Iterable, Mapping
from itertools import islice

import msgspec

from service.feeds.parsing.field_limits import NAME_CHARS, absolute_link, limit_text, parse_count
from service.feeds.parsing.html_text import one_line
from service.model import Enclosure

MAX_ENCLOSURES = 4
FILE_URL_CHARS = 1_000
_MAX_READ = 20
"""Maximum number of files, and of images, that are read for an entry."""
_MAX_SIZE_BYTES = 10**11
_MAX_DURATION_S = 10**6
_MAX_WIDTH = 100_000

_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9.+-]*/[a-z0-9][a-z0-9.+-]*")
_MEDIUMS = {"audio", "video", "image", "document", "executable"}
_DEFAULT_TYPE = "text/html"
_CLOCK = re.compile(r"(?:(?:([0-9]{1,4}):)?([0-9]{1,4}):)?([0-9]{1,7})(?:\.[0-9]{1,9})?")


def read_files(
    files: Iterable[Mapping[str, object]], images: Iterable[object], url: str, *, duration: object = None
) -> tuple[tuple[Enclosure, ...], str]:
    """Return an entry's enclosures and the URL of its image: (enclosures, image).

    There are at most 4 enclosures, in the order of ``files``. Files that are images are not among them. The image is
    the widest of these files, or else the first valid URL in ``images``; "" if there is none. All URLs are absolute
    http or https URLs of at most 1,000 characters.

    - ``files``: the attributes of each file.
    - ``images``: the URLs of other images of the entry, the preferred ones first.
    - ``url``: the URL of the document.
    - ``duration``: the duration that the entry states (``itunes:duration``). It is that of the first audio or video
      file, unless the file states its own.
    """
    enclosures: dict[str, Enclosure] = {}
    pictures: list[tuple[int, str]] = []
    for attributes in islice(files, _MAX_READ):
        enclosure = _enclosure(attributes, url)
        if enclosure.kind == "image":
            pictures.append((parse_count(attributes.get("width"), _MAX_WIDTH) or 0, enclosure.url))
        elif enclosure.url and len(enclosures) < MAX_ENCLOSURES:
            enclosures.setdefault(enclosure.url, enclosure)
    found = list(enclosures.values())
    place = next((place for place, each in enumerate(found) if each.is_playable), None)
    if place is not None and not found[place].duration_s:
        found[place] = msgspec.structs.replace(found[place], duration_s=_duration_s(duration))
    widest = [max(pictures, key=lambda picture: picture[0])[1]] if pictures else []
    others = (_file_url(image, url) for image in islice(images, _MAX_READ))
    return tuple(found), next(filter(None, (*widest, *others)), "")


def _enclosure(attributes: Mapping[str, object], url: str) -> Enclosure:
    """Return the enclosure with these attributes; its URL is "" if it is missing or invalid."""

    def first(*names: str) -> object:
        return next((attributes[name] for name in names if attributes.get(name)), None)

    media_type = limit_text(first("type", "mime_type"), NAME_CHARS).lower()
    if media_type == _DEFAULT_TYPE or not _MEDIA_TYPE.fullmatch(media_type):  # feedparser's default for a link
        medium = limit_text(first("medium"), NAME_CHARS).lower()
        media_type = medium if medium in _MEDIUMS else ""
    title = first("title")
    return Enclosure(
        _file_url(first("href", "url"), url),
        media_type,
        parse_count(_as_text(first("length", "filesize", "size_in_bytes")), _MAX_SIZE_BYTES) or 0,
        _duration_s(_as_text(first("duration", "duration_in_seconds"))),
        one_line(title[: 4 * NAME_CHARS], NAME_CHARS) if isinstance(title, str) else "",
    )


def _file_url(value: object, url: str) -> str:
    link = absolute_link(value, url)
    return link if link.lower().startswith(("http://", "https://")) and len(link) <= FILE_URL_CHARS else ""


def _as_text(value: object) -> object:
    """Return a number of JSON as text; other values are returned unchanged."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return str(int(value)) if abs(value) <= _MAX_SIZE_BYTES else ""
    return value


def _duration_s(value: object) -> int:
    """Return a duration in seconds, which is written as ``H:MM:SS``, ``MM:SS`` or a number of seconds; 0 if invalid."""
    clock = _CLOCK.fullmatch(limit_text(value, NAME_CHARS))
    if not clock:
        return 0
    hours, minutes, seconds = (int(part or 0) for part in clock.groups())
    total_s = 3600 * hours + 60 * minutes + seconds
    return total_s if total_s <= _MAX_DURATION_S else 0
