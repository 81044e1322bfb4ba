"""Intervals are formatted as frequencies."""

import pytest

from bots.i18n.translator import LANGUAGES, get_translator


@pytest.mark.parametrize(
    ("interval_s", "formatted"),
    [
        (
            0.4,
            (
                "every second",
                "jede Sekunde",
                "toutes les secondes",
                "cada segundo",
                "ogni secondo",
                "a cada segundo",
                "elke seconde",
                "co sekundę",
            ),
        ),
        (
            89.0,
            (
                "every 89 seconds",
                "alle 89 Sekunden",
                "toutes les 89 secondes",
                "cada 89 segundos",
                "ogni 89 secondi",
                "a cada 89 segundos",
                "elke 89 seconden",
                "co 89 sekund",
            ),
        ),
        (
            90.0,
            (
                "every 2 minutes",
                "alle 2 Minuten",
                "toutes les 2 minutes",
                "cada 2 minutos",
                "ogni 2 minuti",
                "a cada 2 minutos",
                "elke 2 minuten",
                "co 2 minuty",
            ),
        ),
        (
            3 * 86_400.0,
            (
                "every 3 days",
                "alle 3 Tage",
                "tous les 3 jours",
                "cada 3 días",
                "ogni 3 giorni",
                "a cada 3 dias",
                "elke 3 dagen",
                "co 3 dni",
            ),
        ),
    ],
)
def test_a_frequency_is_rounded_to_its_largest_unit(interval_s: float, formatted: tuple[str, ...]) -> None:
    assert tuple(get_translator(language).format_frequency(interval_s) for language in LANGUAGES) == formatted


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


@pytest.mark.parametrize(
    ("language", "durations"),
    [
        ("en", ["1 day", "2 hours", "5 minutes", "12,345 days"]),
        ("de", ["1 Tag", "2 Stunden", "5 Minuten", "12.345 Tage"]),
        ("fr", ["1\xa0jour", "2\xa0heures", "5 minutes", "12\u202f345\xa0jours"]),
        ("es", ["1 día", "2 horas", "5 minutos", "12.345 días"]),
        ("it", ["1 giorno", "2 ore", "5 minuti", "12.345 giorni"]),
        ("pt", ["1 dia", "2 horas", "5 minutos", "12.345 dias"]),
        ("nl", ["1 dag", "2 uur", "5 minuten", "12.345 dagen"]),
        ("pl", ["1 dzień", "2 godziny", "5 minut", "12\xa0345 dni"]),
    ],
)
def test_durations_are_written_in_the_language(language: str, durations: list[str]) -> None:
    lengths_s = (86_400, 7_200, 300, 12_345 * 86_400)
    assert [get_translator(language).format_exact_duration(length_s) for length_s in lengths_s] == durations
