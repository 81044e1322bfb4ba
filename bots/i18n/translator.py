"""One language to speak to somebody in.

A sentence stands in the code as its English form, as an argument of :meth:`Voice.say` or :meth:`Voice.many`, or of
:func:`marked` where it is kept for later: that is where ``make words`` finds it for the catalogs in ``bots/catalogs``.
What is put into it is named: ``{title}``. Sentences are whole, because pieces glued together cannot be translated; what
is put in stands where it fits whatever its gender and case. Dates, numbers and lists are written as the CLDR has them.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from gettext import GNUTranslations, NullTranslations
from importlib.resources import files
from io import BytesIO
from typing import Final
from unicodedata import combining, normalize
from zoneinfo import ZoneInfo

from babel import Locale
from babel.dates import format_datetime, format_timedelta, get_day_names
from babel.lists import format_list
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from babel.numbers import format_decimal
from babel.units import format_unit

SOURCE: Final = "en"
"""What the code speaks, and who says nothing of their language is spoken to in."""
LANGUAGES: Final = (SOURCE, "de", "fr", "es")
_UNITS_S: Final = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))
_CONVENTIONS: Final = {SOURCE: "en_GB"}
"""Hours are counted to 24 in what people write to us; so are they in what we write."""


class Voice:
    """Says sentences in one language."""

    def __init__(self, language: str) -> None:
        """Speak one of ``LANGUAGES``."""
        self.language = language
        self._locale = Locale.parse(_CONVENTIONS.get(language, language))
        self._catalog = catalog(language)

    def say(self, sentence: str, /, **values: object) -> str:
        """Return the sentence with these values put in; whole numbers as the language writes them."""
        said = self._catalog.gettext(sentence) if sentence else ""  # what a catalog says to "" is its head
        return said.format(**self._written(values)) if values else said

    def many(self, one: str, more: str, count: int, /, **values: object) -> str:
        """Return the form of a sentence that goes with ``count``, which is put in for ``{count}``."""
        said = self._catalog.ngettext(one, more, count)
        return said.format(**self._written({"count": count, **values}))

    def listed(self, items: Sequence[str]) -> str:
        """Return things one after another: ``a, b and c``."""
        return format_list(items, locale=self._locale)

    def span(self, length_s: float) -> str:
        """Return a length of time in words, rounded; at least a second."""
        return format_timedelta(timedelta(seconds=max(1.0, length_s)), threshold=1.5, locale=self._locale)

    def exactly(self, length_s: int) -> str:
        """Return a length of time in words, in the largest unit of which it is a whole number."""
        unit, unit_s = next((unit, unit_s) for unit, unit_s in _UNITS_S if length_s % unit_s == 0)
        return format_unit(length_s // unit_s, unit, locale=self._locale)

    def moment(self, at_s: float, zone: str) -> str:
        """Return a date and time of day, of Unix time, by the clocks of a zone of the tz database."""
        return format_datetime(datetime.fromtimestamp(at_s, ZoneInfo(zone)), "medium", locale=self._locale)

    def day(self, number: int) -> str:
        """Return the name of a day of the week; 0 is Monday."""
        return str(get_day_names("wide", locale=self._locale)[number])

    def name(self, language: str) -> str:
        """Return what a language is called."""
        return str(self._locale.languages[language])

    def _written(self, values: dict[str, object]) -> dict[str, object]:
        return {
            name: format_decimal(value, locale=self._locale) if isinstance(value, int) else value
            for name, value in values.items()
        }


def voice(tag: str) -> Voice:
    """Return who speaks the language of this tag, or who speaks English if nobody does."""
    return _voice(spoken(tag) or SOURCE)


@cache
def _voice(language: str) -> Voice:
    return Voice(language)


@cache
def catalog(language: str) -> NullTranslations:
    """Return the sentences of a language by their English form, read from its ``.po`` file."""
    if language == SOURCE:
        return NullTranslations()
    compiled = BytesIO()
    with files("bots").joinpath("catalogs", language, "LC_MESSAGES", "coronet.po").open("rb") as written:
        write_mo(compiled, read_po(written, locale=language))
    compiled.seek(0)
    return GNUTranslations(compiled)


def spoken(tag: str) -> str:
    """Return which of ``LANGUAGES`` a language tag (RFC 5646: ``de-AT``) stands for, or ""."""
    primary = tag.replace("_", "-").partition("-")[0].lower()
    return primary if primary in LANGUAGES else ""


def language_named(words: str) -> str:
    """Return which of ``LANGUAGES`` people call so, in any of them or by its tag, or ""."""
    return _names().get(bare(words)) or spoken(words.strip())


@cache
def _names() -> dict[str, str]:
    return {bare(_voice(speaker).name(named)): named for speaker in LANGUAGES for named in LANGUAGES}


def bare(words: str) -> str:
    """Return words as they compare: without capitals and accents, one space between them and none around.

    Without long runs of white space, expressions over them take linear time.
    """
    plain = "".join(each for each in normalize("NFKD", words.casefold()) if not combining(each))
    return " ".join(plain.split())


def marked(sentence: str) -> str:
    """Return the sentence as it is: it is to be translated where it is said."""
    return sentence
