"""Parsing of quiet hours, digests and intervals."""

import ast
from collections.abc import Callable
from itertools import combinations, product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.commands import days_and_times
from service.users.quiet_hours_and_digests import EVERY_DAY, DigestSchedule, QuietHours

NIGHT = (22 * 60, 7 * 60)


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("22:00-07:00", QuietHours(*NIGHT)),
        ("22-7", QuietHours(*NIGHT)),
        ("22.00 – 7.00", QuietHours(*NIGHT)),  # noqa: RUF001 - people type it
        ("22h00 to 07h00 daily", QuietHours(*NIGHT)),
        ("22:00-07:00 mon-fri", QuietHours(*NIGHT, (0, 1, 2, 3, 4))),
        ("22:00-07:00 fri-mon", QuietHours(*NIGHT, (0, 4, 5, 6))),
        ("22:00-07:00 Saturday, sun", QuietHours(*NIGHT, (5, 6))),
        ("22:00-07:00 weekdays", QuietHours(*NIGHT, (0, 1, 2, 3, 4))),
        ("0:00-24:00 wed", QuietHours(0, 0, (2,))),
        ("", None),
        ("22:00", None),
        ("22:60-7:00", None),
        ("25-7", None),
        ("22:00-07:00 someday", None),
        ("22:00-07:00 m", None),
        ("von 22 bis 7 mo-fr", QuietHours(*NIGHT, (0, 1, 2, 3, 4))),
        ("22:00-07:00 Sa, Sonntag", QuietHours(*NIGHT, (5, 6))),
        ("22:00-07:00 Wochenende", QuietHours(*NIGHT, (5, 6))),
        ("de 22h00 à 7h lun-ven", QuietHours(*NIGHT, (0, 1, 2, 3, 4))),
        ("22:00-07:00 week-end", QuietHours(*NIGHT, (5, 6))),
        ("de 22:00 a 7:00 miércoles, sáb", QuietHours(*NIGHT, (2, 5))),
        ("22:00-07:00 de lunes a viernes", QuietHours(*NIGHT, (0, 1, 2, 3, 4))),
        ("dalle 22 alle 7 dal lunedì al venerdì", QuietHours(*NIGHT, (0, 1, 2, 3, 4))),
        ("22:00-07:00 fine settimana", QuietHours(*NIGHT, (5, 6))),
        ("das 22 às 7 de segunda a sexta", QuietHours(*NIGHT, (0, 1, 2, 3, 4))),
        ("22h-7h terça-feira, dom", QuietHours(*NIGHT, (1, 6))),
        ("22:00-07:00 segunda-feira-sexta-feira", QuietHours(*NIGHT, (0, 1, 2, 3, 4))),
        ("van 22u tot 7u30 ma-vr", QuietHours(22 * 60, 7 * 60 + 30, (0, 1, 2, 3, 4))),
        ("22:00-07:00 zaterdag, zo", QuietHours(*NIGHT, (5, 6))),
        ("22:00-07:00 donderdag t/m zaterdag", QuietHours(*NIGHT, (3, 4, 5))),
        ("22:00-07:00 do", QuietHours(*NIGHT, (3,))),
        ("od 22 do 7 pn-pt", QuietHours(*NIGHT, (0, 1, 2, 3, 4))),
        ("od 22 do 7 od poniedziałku do środy", QuietHours(*NIGHT, (0, 1, 2))),
        ("22:00-07:00 niedziela, śr", QuietHours(*NIGHT, (2, 6))),
        ("22:00-07:00 so", QuietHours(*NIGHT, (6,))),
    ],
)
def test_quiet_hours_are_parsed_in_common_notations(words: str, meant: QuietHours | None) -> None:
    assert days_and_times.parse_quiet_hours(words) == meant


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("hourly", DigestSchedule("hour")),
        ("daily", DigestSchedule("day")),
        ("Daily at 18:30", DigestSchedule("day", 18 * 60 + 30)),
        ("weekly", DigestSchedule("week")),
        ("weekly fri", DigestSchedule("week", day=4)),
        ("weekly Friday 17", DigestSchedule("week", 17 * 60, 4)),
        ("weekly 17:00", DigestSchedule("week", 17 * 60)),
        ("stündlich", DigestSchedule("hour")),
        ("wöchentlich Fr um 17", DigestSchedule("week", 17 * 60, 4)),
        ("tous les jours à 18h30", DigestSchedule("day", 18 * 60 + 30)),
        ("hebdomadaire dim", DigestSchedule("week", day=6)),
        ("cada semana viernes a las 17:00", DigestSchedule("week", 17 * 60, 4)),
        ("diario", DigestSchedule("day")),
        ("ogni giorno alle 18:30", DigestSchedule("day", 18 * 60 + 30)),
        ("settimanale venerdì alle 17", DigestSchedule("week", 17 * 60, 4)),
        ("todos os dias às 8", DigestSchedule("day", 8 * 60)),
        ("semanal sexta-feira às 17:00", DigestSchedule("week", 17 * 60, 4)),
        ("elk uur", DigestSchedule("hour")),
        ("elke week vr om 17.00", DigestSchedule("week", 17 * 60, 4)),
        ("codziennie o 8:15", DigestSchedule("day", 8 * 60 + 15)),
        ("co tydzień w piątek", None),
        ("co tydzień piątek o 17", DigestSchedule("week", 17 * 60, 4)),
        ("", None),
        ("hourly 8", None),
        ("daily fri 8:00", None),
        ("weekly fri sat 8:00", None),
        ("monthly", None),
    ],
)
def test_digest_schedules_are_parsed_in_common_notations(words: str, meant: DigestSchedule | None) -> None:
    assert days_and_times.parse_digest(words) == meant


@pytest.mark.parametrize(
    ("words", "meant_s"),
    [
        ("10m", 600), ("90 min", 5_400), ("1h 30m", 5_400), ("1h30m", 5_400), ("every 2 hours", 7_200),
        ("at most every hour", 3_600), ("at most once every 2 hours", 7_200),
        ("Hourly", 3_600), ("daily", 86_400), ("weekly", 604_800), ("2 Std.", 7_200),
        ("alle 10 Minuten", 600), ("jeden Tag", 86_400), ("stündlich", 3_600), ("toutes les 2 heures", 7_200),
        ("chaque jour", 86_400), ("1 j", 86_400), ("cada 2 días", 172_800), ("todas las horas", 3_600),
        ("cada semana", 604_800), ("0m", 0),
        ("ogni 2 ore", 7_200), ("ogni giorno", 86_400), ("1 giorno 2 ore", 93_600), ("2 settimane", 1_209_600),
        ("a cada 2 horas", 7_200), ("todas as semanas", 604_800), ("de hora em hora", 3_600),
        ("om de 2 uur", 7_200), ("elke dag", 86_400), ("3 weken", 1_814_400), ("2u", 7_200),
        ("co 2 godziny", 7_200), ("co godzinę", 3_600), ("1 tydzień", 604_800), ("5 dni", 432_000),
        ("", None), ("10", None), ("m10", None), ("10 apples", None), ("10 m or so", None), ("daily 08:00", None),
    ],
)  # fmt: skip
def test_intervals_are_parsed_in_common_notations(words: str, meant_s: int | None) -> None:
    assert days_and_times.parse_interval_s(words) == meant_s


@given(st.text(max_size=40))
def test_any_text_is_parsed_to_valid_times_or_none(words: str) -> None:
    quiet, digest, interval_s = (
        days_and_times.parse_quiet_hours(words),
        days_and_times.parse_digest(words),
        days_and_times.parse_interval_s(words),
    )
    assert interval_s is None or interval_s >= 0
    assert quiet is None or set(quiet.days) <= set(EVERY_DAY)
    assert digest is None or 0 <= digest.at < 24 * 60


def test_day_names_are_unambiguous_across_languages() -> None:
    for first, second in combinations(range(7), 2):
        for name, other in product(days_and_times._DAYS[first], days_and_times._DAYS[second]):
            assert name[:3] != other[:3]
        assert not set(days_and_times._TWO_LETTER_DAYS[first]) & set(days_and_times._TWO_LETTER_DAYS[second])


def test_words_that_are_no_days_are_unambiguous_across_languages() -> None:
    """A word in two groups would be kept only in the last one."""
    tree = ast.parse(Path(days_and_times.__file__).read_text(encoding="utf-8"))
    for table in ("DAY_GROUPS", "SCHEDULES", "UNITS_S"):
        listed = [
            literal.value
            for node in tree.body
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == table
            for literal in ast.walk(node)
            if isinstance(literal, ast.Constant) and isinstance(literal.value, str)
        ]
        meanings = getattr(days_and_times, table)
        repeated = {word for word in listed if word in meanings and listed.count(word) > 1}
        assert not repeated


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "read", [days_and_times.parse_quiet_hours, days_and_times.parse_digest, days_and_times.parse_interval_s]
)
@pytest.mark.parametrize("words", ["22:00{}7:00", "1h{}x", "daily at{}x", "every{}x"])
@pytest.mark.parametrize("space", [" ", "\t", "\u00a0", "\u3000"])
def test_long_runs_of_white_space_are_read_in_linear_time(
    read: Callable[[str], object], words: str, space: str
) -> None:
    assert read(words.format(space * 100_000)) == read(words.format(" "))
