"""Text analysis for search: words, stems, and the language of a text."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.discovery import word_analysis
from service.discovery.word_analysis import (
    LANGUAGES,
    MAX_TEXT_CHARS,
    MAX_WORD_CHARS,
    fold,
    query_stems,
    stem,
    stem_beginning,
    text_language,
    without_umlauts,
    word_parts,
    words,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The quick Brown fox", ["quick", "brown", "fox"]),
        ("C++ and C#, with .NET and Node.js", ["c++", "c#", ".net", "node.js"]),
        ("Python 3.12 is out.", ["python", "3.12", "out"]),
        ("L\u2019énergie d\u2019été à Orléans", ["energie", "ete", "orleans"]),
        ("Straße in Łódź, Ærø", ["strasse", "lodz", "aero"]),
        ("\uff26\uff55ll\u3000width", ["full", "width"]),
        ("soft\u00adhyphen", ["softhyphen"]),
        ("全文検索Lucene", ["全文", "文検", "検索", "lucene"]),
        ("every_name under_score", ["every_name", "under_score"]),
        ("Ends. Starts again...", ["ends", "starts", "again"]),
    ],
)
def test_words_are_folded_and_in_order(text: str, found: list[str]) -> None:
    assert words(text) == found


def test_common_words_are_included_on_request() -> None:
    assert words("The end of it", include_common=True) == ["the", "end", "of", "it"]


def test_parts_of_words_with_dots_are_words_too() -> None:
    assert word_parts("node.js") == ["node", "js"]
    assert word_parts("end.of.sentence") == ["end", "sentence"]
    assert word_parts(".net") == word_parts("python") == []


@pytest.mark.parametrize(
    ("language", "written", "other"),
    [
        ("en", "connections", "connected"),
        ("de", "Bücher", "Buch"),
        ("de", "Häuser", "Haus"),
        ("fr", "étudiantes", "étudiant"),
        ("es", "canciones", "canción"),
        ("it", "canzoni", "canzone"),
        ("pt", "eleições", "eleição"),
    ],
)
def test_inflected_words_share_a_stem(language: str, written: str, other: str) -> None:
    assert stem(fold(written), language) == stem(fold(other), language)
    assert stem(fold(written), language) in query_stems(fold(other))


def test_words_of_unsupported_languages_are_not_stemmed() -> None:
    assert stem("boeken", "nl") == stem("boeken", "") == "boeken"
    assert "boeken" in query_stems("boeken")
    assert query_stems("c++") == ("c++",)


@pytest.mark.parametrize(
    ("text", "declared", "language"),
    [
        ("How to build the garden of your dreams", "", "en"),
        ("Wie man in der Stadt einen Garten baut", "en-US", "de"),
        ("Pourquoi les chats dorment dans la journée", "", "fr"),
        ("Por qué los gatos duermen en el sofá", "", "es"),
        ("La nuova legge è stata approvata dal Senato con molti voti contrari", "", "it"),
        ("A nova lei foi aprovada pelo Senado com muitos votos contra", "", "pt"),
        ("La nueva ley fue aprobada por el Senado con muchos votos en contra", "", "es"),
        ("Kubernetes 1.30 Changelog", "de_AT", "de"),
        ("Kubernetes 1.30 Changelog", "", ""),
        ("Waarom katten op de bank slapen in mijn huis met een kussen", "nl", "nl"),
    ],
)
def test_the_language_of_a_text_is_recognised_or_declared(text: str, declared: str, language: str) -> None:
    assert text_language(words(text, include_common=True), declared) == language


@given(st.text())
def test_a_folded_text_stays_the_same_when_folded_again(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(st.text(), st.sampled_from(LANGUAGES))
def test_any_text_has_short_folded_words_that_stay_the_same_when_folded_again(text: str, language: str) -> None:
    for word in words(text, include_common=True):
        assert 0 < len(word) <= MAX_WORD_CHARS
        assert fold(word) == word
        assert stem(word, language)
        assert stem(word, language) in query_stems(word)


@pytest.mark.parametrize("text", ["x" * 1_000_000, "é " * 500_000, "ﷺ" * 1_000_000, "語" * 1_000_000, ".net" * 250_000])
def test_a_text_of_a_megabyte_is_cut_before_it_is_analysed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folded = list[str]()

    def record_and_fold(cut: str) -> str:
        folded.append(cut)
        return fold(cut)

    monkeypatch.setattr(word_analysis, "fold", record_and_fold)
    found = words(text, include_common=True)
    assert folded == [text[:MAX_TEXT_CHARS]]
    assert sum(map(len, found)) <= 2 * MAX_TEXT_CHARS


_ENDINGS = (
    *("", "s", "y", "ies", "ying", "tion", "ence", "logie", "euse", "eux", "ment", "ques", "heit", "ue", "ness"),
    *("zioni", "enza", "logia", "andogli", "issimo", "encias", "oes", "amos", "ivel", "arlo"),
)


@given(st.text("abcdegiklmnoqrstuwxyz", min_size=1, max_size=7), st.sampled_from(_ENDINGS))
@example("maestr", "o")
@example("d", "ying")
@example("cr", "y")
def test_stem_beginnings_are_prefixes_of_the_words(word: str, ending: str) -> None:
    for stemmed in query_stems(word + ending):
        assert without_umlauts(word + ending).startswith(stem_beginning(stemmed))


@given(st.text("aeoux ", max_size=30))
def test_every_e_after_a_o_or_u_is_removed(text: str) -> None:
    assert without_umlauts(text) == re.sub("(?<=[aou])e+", "", text)
