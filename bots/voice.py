"""One language to speak to somebody in. Pure.

A sentence stands in the code as its English form, as an argument of :meth:`Voice.say` or :meth:`Voice.many`, or of
:func:`marked` where it is kept for later: that is where ``make words`` finds it for the catalogs. What is put into it
is named: ``{title}``. Sentences are whole: pieces glued together cannot be translated.
"""

from functools import cache
from gettext import NullTranslations
from typing import Final

LANGUAGES: Final = ("en",)


class Voice:
    """Says sentences in one language."""

    def __init__(self, language: str) -> None:
        """Speak one of ``LANGUAGES``."""
        self.language = language
        self._catalog = NullTranslations()

    def say(self, sentence: str, /, **values: object) -> str:
        """Return the sentence with these values put in; whole numbers as the language writes them."""
        return self._catalog.gettext(sentence).format(**self._written(values))

    def many(self, one: str, more: str, count: int, /, **values: object) -> str:
        """Return the form of a sentence that goes with ``count``, which is put in for ``{count}``."""
        return self._catalog.ngettext(one, more, count).format(**self._written({"count": count, **values}))

    def _written(self, values: dict[str, object]) -> dict[str, object]:
        return {name: f"{value:,}" if isinstance(value, int) else value for name, value in values.items()}


@cache
def voice(language: str) -> Voice:
    """Return who speaks this language, or English if nobody does."""
    return Voice(language if language in LANGUAGES else LANGUAGES[0])


def marked(sentence: str) -> str:
    """Return the sentence as it is: it is to be translated where it is said."""
    return sentence
