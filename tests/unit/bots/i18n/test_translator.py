"""Intervals are formatted as frequencies."""

import pytest

from bots.i18n.translator import get_translator


@pytest.mark.parametrize(
    ("interval_s", "english", "german", "french", "spanish"),
    [
        (0.4, "every second", "jede Sekunde", "toutes les secondes", "cada segundo"),
        (89.0, "every 89 seconds", "alle 89 Sekunden", "toutes les 89 secondes", "cada 89 segundos"),
        (90.0, "every 2 minutes", "alle 2 Minuten", "toutes les 2 minutes", "cada 2 minutos"),
        (3 * 86_400.0, "every 3 days", "alle 3 Tage", "tous les 3 jours", "cada 3 días"),
    ],
)
def test_a_frequency_is_rounded_to_its_largest_unit(
    interval_s: float, english: str, german: str, french: str, spanish: str
) -> None:
    formatted = [get_translator(language).format_frequency(interval_s) for language in ("en", "de", "fr", "es")]
    assert formatted == [english, german, french, spanish]


@pytest.mark.parametrize(
    ("interval_s", "english"),
    [
        (60, "at most once a minute"),
        (3_600, "at most once an hour"),
        (5_400, "at most once every 90 minutes"),
        (86_400, "at most once a day"),
        (604_800, "at most once every 7 days"),
    ],
)
def test_a_maximum_frequency_is_not_rounded(interval_s: int, english: str) -> None:
    assert get_translator("en").format_max_frequency(interval_s) == english


def test_a_duration_just_below_a_unit_is_rounded_to_that_unit() -> None:
    lengths = [get_translator("en").format_duration(length_s) for length_s in (0.0, 3_590.0, 3_600.0, 4_800.0)]
    assert lengths == ["1 second", "1 hour", "1 hour", "80 minutes"]
