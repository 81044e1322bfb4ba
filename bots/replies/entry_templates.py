"""Templates with which users format entries, for example ``$title: $link ($date)``.

A template is filled once per entry. Each value is put on one line. Variables in a value are not replaced, so a ``$`` in
a publisher's text has no effect.
"""

from string import Template
from typing import Final

import msgspec

from bots.i18n.translator import Translator
from bots.replies.formatting import hashtags
from service.feeds.parsing.html_text import one_line
from service.model import Entry

MAX_CHARS: Final = 500
MAX_LINES: Final = 10
VARIABLES: Final = ("channel", "title", "link", "date", "summary", "author", "tags", "image", "enclosure")


class _Template(Template):
    """A template whose variable names may contain letters and digits of any script, and underscores."""

    idpattern = r"\w+"


class EntryTemplate(msgspec.Struct, frozen=True):
    """A user's template for entries, and the time zone in which it shows dates."""

    text: str
    zone: str

    @property
    def has_channel(self) -> bool:
        """Whether the template contains the channel's title. If not, notifications show the title above the entries."""
        return any(name.lower() == "channel" for name in _Template(self.text).get_identifiers())

    def fill(self, entry: Entry, channel: str, summary_chars: int, translator: Translator) -> str:
        """Return the template filled with the values of an entry; the result may be "".

        ``channel`` is the title of the entry's channel. The value of ``$summary`` is cut to ``summary_chars``
        characters. ``$tags`` are hashtags. ``$image`` and ``$enclosure`` are the URLs of the entry's image and of its
        first audio, video or other file.
        """
        template, published_s = _Template(self.text), entry.published
        values = {
            "channel": channel,
            "title": one_line(entry.title, 300),
            "link": one_line(entry.link, 2000),
            "date": translator.format_datetime(published_s, self.zone) if published_s is not None else "",
            "summary": one_line(entry.summary, summary_chars) if summary_chars else "",
            "author": one_line(", ".join(entry.authors), 200),
            "tags": hashtags(entry.tags),
            "image": one_line(entry.image, 2000),
            "enclosure": one_line(entry.main_enclosure.url, 2000) if entry.main_enclosure else "",
        }
        filled = template.safe_substitute({name: values[name.lower()] for name in template.get_identifiers()})
        # Variables without a value leave no empty lines.
        return "\n".join(line.strip() for line in filled.splitlines() if line.strip())


def normalize(text: str) -> str:
    """Convert a template that a user has typed to the form in which it is stored.

    Users type a line break as a backslash followed by the letter n. It is replaced with a real line break.
    """
    lines = text.replace("\\n", "\n").strip().splitlines()
    return "\n".join(one_line(line, MAX_CHARS) for line in lines)


def is_short_enough(text: str) -> bool:
    """Return whether a normalised template (see :func:`normalize`) is within the length limits."""
    return len(text) <= MAX_CHARS and text.count("\n") < MAX_LINES


def unknown_variables(text: str) -> tuple[str, ...]:
    """Return the variables in the template that do not exist, without duplicates."""
    names = (name.lower() for name in _Template(text).get_identifiers())
    return tuple(dict.fromkeys(name for name in names if name not in VARIABLES))
