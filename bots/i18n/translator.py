"""Translation of the bot's sentences, and formatting of dates, numbers and lists for one language.

The code contains every sentence in English, as an argument of :meth:`Translator.gettext` or
:meth:`Translator.ngettext`, or of :func:`gettext_noop` if the sentence is a constant that is translated later. ``make
words`` extracts these arguments into the catalogs in ``bots/catalogs``.

Placeholders are named, for example ``{title}``. A sentence is never assembled from parts, because the parts could not
be translated separately. Sentences are worded so that any value fits into a placeholder, whatever the value's
grammatical gender and case. Dates, numbers and lists are formatted as the Unicode CLDR defines for the language.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cache
from gettext import GNUTranslations, NullTranslations
from importlib.resources import files
from io import BytesIO
from math import inf
from typing import Final, Literal
from unicodedata import combining, normalize
from zoneinfo import ZoneInfo

from babel import Locale
from babel.dates import format_datetime, format_timedelta, get_day_names
from babel.lists import format_list
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from babel.numbers import format_decimal
from babel.units import format_unit

SOURCE_LANGUAGE: Final = "en"
"""The language of the sentences in the code, and the default for people whose language is unknown."""
LANGUAGES: Final = (SOURCE_LANGUAGE, "de", "fr", "es", "it", "pt", "nl", "pl")
_BYTES_PER_MB: Final = 1_000_000
_TimeUnit = Literal["year", "month", "week", "day", "hour", "minute", "second"]
_UNITS_S: Final[dict[_TimeUnit, int]] = {
    "year": 31_536_000,
    "month": 2_592_000,
    "week": 604_800,
    "day": 86_400,
    "hour": 3_600,
    "minute": 60,
    "second": 1,
}
_EXACT_UNITS: Final[tuple[_TimeUnit, ...]] = ("day", "hour", "minute", "second")
_THRESHOLD: Final = 1.5
"""A duration is stated in the largest unit of which it has at least this many: 85 minutes (1.4 hours) are stated in
minutes, and 95 minutes (1.6 hours) in hours."""
_SINGLE_UNIT_TOLERANCE: Final = 0.02
"""A duration that differs from one unit by less than this fraction of the unit is stated as one unit: 61 minutes are
stated as one hour."""
_LOCALES: Final = {SOURCE_LANGUAGE: "en_GB"}
"""Maps languages to locales. For a language that is absent, the name of the locale is the language itself. English has
the British locale, because it has a 24-hour clock, as the bot's commands do."""


class Translator:
    """Translates sentences into one language."""

    def __init__(self, language: str) -> None:
        """Create a translator for ``language``, one of ``LANGUAGES``."""
        self.language = language
        self._locale = Locale.parse(_LOCALES.get(language, language))
        self._catalog = load_catalog(language)

    def gettext(self, sentence: str, /, **values: object) -> str:
        """Translate an English sentence, and replace its placeholders with ``values``.

        Integers are formatted according to the conventions of the language.
        """
        translated = self._catalog.gettext(sentence) if sentence else ""  # the translation of "" is the catalog's head
        return translated.format(**self._format_numbers(values)) if values else translated

    def ngettext(self, singular: str, plural: str, count: int, /, **values: object) -> str:
        """Translate a sentence, using its plural form for ``count``, and replace its placeholders with ``values``.

        ``singular`` and ``plural`` are the two English forms of the sentence. The placeholder ``{count}`` is replaced
        with ``count``.
        """
        translated = self._catalog.ngettext(singular, plural, count)
        return translated.format(**self._format_numbers({"count": count, **values}))

    def format_list(self, items: Sequence[str]) -> str:
        """Join the items into a list in this language, for example ``a, b and c``."""
        return format_list(items, locale=self._locale)

    def format_alternatives(self, items: Sequence[str]) -> str:
        """Join the items as alternatives, for example ``a, b or c``."""
        return format_list(items, style="or", locale=self._locale)

    def format_duration(self, duration_s: float) -> str:
        """Return a duration in words, for example ``2 hours``. It is rounded to a whole number of units.

        A duration of less than a second is rounded up to one second.
        """
        count, unit = _rounded_duration(max(1.0, duration_s))
        return self._format_units(count, unit)

    def format_exact_duration(self, duration_s: int) -> str:
        """Return a duration in words without rounding: ``90 minutes`` for 5,400 seconds, ``2 hours`` for 7,200."""
        count, unit = _exact_duration(duration_s)
        return self._format_units(count, unit)

    def format_size(self, size_bytes: int) -> str:
        """Return the size of a file, for example ``34.2 MB``; less than a megabyte is stated in kilobytes."""
        is_small = size_bytes < _BYTES_PER_MB
        value, unit = (size_bytes / 1e3, "kilobyte") if is_small else (size_bytes / _BYTES_PER_MB, "megabyte")
        return format_unit(round(value) if is_small else round(value, 1), unit, "short", locale=self._locale)

    def format_frequency(self, interval_s: float) -> str:
        """Express an interval as a frequency, rounded to whole units, for example ``every 5 minutes``."""
        count, unit = _rounded_duration(interval_s)
        return self._frequency(count, unit)

    def format_max_frequency(self, interval_s: int) -> str:
        """Express a minimum interval as a maximum frequency, for example ``at most once every 2 hours``."""
        match _exact_duration(interval_s):
            case 1, "minute":
                return self.gettext("at most once a minute")
            case 1, "hour":
                return self.gettext("at most once an hour")
            case 1, "day":
                return self.gettext("at most once a day")
            case count, unit:
                return self.gettext("at most once {frequency}", frequency=self._frequency(count, unit))

    def _format_units(self, count: int, unit: _TimeUnit) -> str:
        # Not format_unit: it knows only those long names that differ from the short ones, and Dutch "dagen" does not.
        words = format_timedelta(count * _UNITS_S[unit], unit, threshold=inf, locale=self._locale)
        return words.replace(str(count), format_decimal(count, locale=self._locale))

    def _frequency(self, count: int, unit: str) -> str:
        frequencies = {
            "second": self.ngettext("every second", "every {count} seconds", count),
            "minute": self.ngettext("every minute", "every {count} minutes", count),
            "hour": self.ngettext("every hour", "every {count} hours", count),
            "day": self.ngettext("every day", "every {count} days", count),
            "week": self.ngettext("every week", "every {count} weeks", count),
            "month": self.ngettext("every month", "every {count} months", count),
            "year": self.ngettext("every year", "every {count} years", count),
        }
        return frequencies[unit]

    def format_datetime(self, at_s: float, zone: str) -> str:
        """Return the date and time of ``at_s`` (Unix seconds) in the time zone called ``zone`` in the tz database."""
        return format_datetime(datetime.fromtimestamp(at_s, ZoneInfo(zone)), "medium", locale=self._locale)

    def weekday_name(self, number: int) -> str:
        """Return the name of a day of the week in this language; ``number`` is 0 for Monday to 6 for Sunday."""
        return str(get_day_names("wide", locale=self._locale)[number])

    def language_name(self, language: str) -> str:
        """Return the name of ``language`` (an ISO 639 code) in this translator's language, or the code if unknown."""
        return str(self._locale.languages.get(language, language))

    def _format_numbers(self, values: dict[str, object]) -> dict[str, object]:
        return {
            name: format_decimal(value, locale=self._locale) if isinstance(value, int) else value
            for name, value in values.items()
        }


def _exact_duration(duration_s: int) -> tuple[int, _TimeUnit]:
    """Return a duration as (count, unit), where ``unit`` is the largest unit (up to days) that gives a whole count."""
    return next((duration_s // _UNITS_S[unit], unit) for unit in _EXACT_UNITS if duration_s % _UNITS_S[unit] == 0)


def _rounded_duration(duration_s: float) -> tuple[int, _TimeUnit]:
    """Return a duration as (count, unit), rounded for :meth:`Translator.format_duration`.

    A duration that is close to one unit is rounded to one unit: 61 minutes become one hour.
    """
    units: Iterator[tuple[int, _TimeUnit]] = (
        (max(1, round(duration_s / unit_s)), unit)
        for unit, unit_s in _UNITS_S.items()
        if duration_s >= _THRESHOLD * unit_s or abs(duration_s / unit_s - 1) < _SINGLE_UNIT_TOLERANCE
    )
    return next(units, (1, "second"))


def get_translator(tag: str) -> Translator:
    """Return the translator for a language tag (RFC 5646), or the one for English if the language is not supported."""
    return _translator(supported_language(tag) or SOURCE_LANGUAGE)


@cache
def _translator(language: str) -> Translator:
    return Translator(language)


@cache
def load_catalog(language: str) -> NullTranslations:
    """Load the catalog with the translations for ``language`` from its ``.po`` file."""
    if language == SOURCE_LANGUAGE:
        return NullTranslations()
    compiled = BytesIO()
    with files("bots").joinpath("catalogs", language, "LC_MESSAGES", "coronet.po").open("rb") as po_file:
        write_mo(compiled, read_po(po_file, locale=language))
    compiled.seek(0)
    return GNUTranslations(compiled)


def supported_language(tag: str) -> str:
    """Return the language in ``LANGUAGES`` that a language tag (RFC 5646) means, for example "de" for ``de-AT``.

    Return "" if the language is not supported.
    """
    primary = tag.replace("_", "-").partition("-")[0].lower()
    return primary if primary in LANGUAGES else ""


def find_language(words: str) -> str:
    """Return the language in ``LANGUAGES`` whose name or tag is ``words``; "" if there is none.

    The name may be written in any of these languages.
    """
    return _languages_by_name().get(normalize_words(words)) or supported_language(words.strip())


@cache
def _languages_by_name() -> dict[str, str]:
    return {
        normalize_words(_translator(language).language_name(named)): named
        for language in LANGUAGES
        for named in LANGUAGES
    }


def normalize_words(words: str) -> str:
    """Normalise words for comparison: return them case-folded, without accents, separated by single spaces.

    Because the result contains no long runs of white space, regular expressions take only linear time to search it.
    """
    plain = "".join(each for each in normalize("NFKD", words.casefold()) if not combining(each))
    return " ".join(plain.replace("ł", "l").split())  # Unicode does not decompose "ł"


def gettext_noop(sentence: str) -> str:
    """Return the sentence unchanged; calling this function marks the sentence for extraction into the catalogs.

    Use it for constants, because they are translated only where they are used.
    """
    return sentence
