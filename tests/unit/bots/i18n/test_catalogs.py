"""The catalogs contain every sentence of the code, and the commands in translations are understood."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import zip_longest
from pathlib import Path
from string import Formatter

import pytest
from babel.messages import Message
from babel.messages.catalog import Catalog
from babel.messages.plurals import get_plural
from babel.messages.pofile import read_po

from bots.commands import parser as commands
from bots.i18n.translator import LANGUAGES, SOURCE_LANGUAGE, get_translator
from service import errors
from tests.architecture.sources import ROOT

OTHERS = [language for language in LANGUAGES if language != SOURCE_LANGUAGE]
SAYING = {
    "gettext",
    "ngettext",
    "gettext_noop",
    "BadUrl",
    "BadQuery",
    "LimitReached",
    "HostNotFound",
    "Unreachable",
    "TlsFailed",
}
SAYING |= {"BadHttp", "EmptyBody", "HostBlocked", "PortRefused"}
QUOTED = re.compile(r"`([^`]+)`")


@cache
def catalog(language: str) -> Catalog:
    path = ROOT / "bots" / "catalogs" / language / "LC_MESSAGES" / "coronet.po"
    with path.open("rb") as written:
        return read_po(written, locale=language)


def messages(language: str) -> list[Message]:
    return [message for message in catalog(language) if message.id]


def translated(language: str) -> list[Message]:
    return [message for message in messages(language) if all(forms(message.string))]


def forms(written: str | Sequence[str] | None) -> tuple[str, ...]:
    return (written,) if isinstance(written, str) else tuple(written or ("",))


def placeholders(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name}


def said(path: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the line and the forms of each sentence that a file says, or keeps to be said."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            wanted = 2 if name == "ngettext" else 1
            literals = [
                each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
            if name in SAYING and len(literals) >= wanted:
                yield node.lineno, tuple(literals[:wanted])


@cache
def source() -> dict[tuple[str, ...], str]:
    """Return every sentence of the programs, and where it stands."""
    paths = sorted(path for room in ("bots", "service") for path in (ROOT / room).rglob("*.py"))
    return {
        sentence: f"{path.relative_to(ROOT)}:{line}"
        for path in paths
        for line, sentence in said(path)
        if path != ROOT / "service/errors.py"
    }


@pytest.mark.parametrize("language", OTHERS)
def test_every_catalog_message_is_used_in_the_code(language: str) -> None:
    """Otherwise the next extraction drops it, although it may still be said."""
    said_forms = {form for sentence in source() for form in sentence} | {"it took too long"}  # of an expression
    assert [message.id for message in messages(language) if not said_forms & set(forms(message.id))] == []


@pytest.mark.parametrize("language", OTHERS)
def test_every_sentence_is_translated(language: str) -> None:
    known = {forms(message.id): message for message in messages(language)}
    missing = [f"{where}: {sentence[0]}" for sentence, where in source().items() if sentence not in known]
    assert not missing, "`make words` gathers them (it sees none in f-strings): " + "\n".join(missing)
    empty = [sentence[0] for sentence, message in known.items() if not all(forms(message.string)) or message.fuzzy]
    assert not empty, "\n".join(empty)
    assert not catalog(language).obsolete


@pytest.mark.parametrize("language", OTHERS)
def test_translations_have_the_same_placeholders(language: str) -> None:
    for message in translated(language):
        wanted = placeholders(forms(message.id)[-1])
        for form in forms(message.string):
            put_in = placeholders(form)
            if not isinstance(message.id, str) and form == forms(message.string)[0]:
                put_in |= {"count"} & wanted  # "one channel" needs no number
            assert put_in == wanted, form


@pytest.mark.parametrize("language", OTHERS)
def test_translations_have_all_plural_forms_of_the_language(language: str) -> None:
    plural = get_plural(language)
    assert (catalog(language).num_plurals, catalog(language).plural_expr) == (plural.num_plurals, plural.plural_expr)
    held = [forms(message.string) for message in translated(language) if message.pluralizable]
    assert {len(each) for each in held} == {plural.num_plurals}


def test_plural_forms_follow_the_language() -> None:
    said = [get_translator(language).ngettext("{count} change", "{count} changes", 0) for language in LANGUAGES]
    assert said == [
        *("0 changes", "0 Änderungen", "0 changement", "0 cambios"),
        *("0 modifiche", "0 alterações", "0 wijzigingen", "0 zmian"),
    ]
    polish = [get_translator("pl").ngettext("{count} change", "{count} changes", count) for count in (1, 3, 5, 22)]
    assert polish == ["1 zmiana", "3 zmiany", "5 zmian", "22 zmiany"]
    assert get_translator("de").ngettext("{count} change", "{count} changes", 12_345) == "12.345 Änderungen"


@pytest.mark.parametrize("language", OTHERS)
def test_quoted_commands_in_translations_are_parsed_like_the_english_ones(language: str) -> None:
    """The commands in a translation are of the same kinds as those in the sentence."""
    for message in translated(language):
        kinds = [_kinds(form) for form in (forms(message.id)[0], *forms(message.string))]
        assert all(each == kinds[0] for each in kinds), (kinds, forms(message.string)[0])


def _kinds(sentence: str) -> list[str]:
    whole = [command for command in QUOTED.findall(sentence) if not set(command) & set("…{")]
    return sorted(type(commands.parse(command)).__name__ for command in whole)


@pytest.mark.parametrize("language", OTHERS)
def test_translations_end_with_the_same_punctuation_as_english(language: str) -> None:
    for message in translated(language):
        singular, plural = forms(message.id)[0], forms(message.id)[-1]
        for sentence, form in zip_longest((singular,), forms(message.string), fillvalue=plural):
            assert _end(form) == _end(sentence), form
            assert form == form.strip()


def _end(sentence: str) -> str:
    last = sentence.rstrip("`)”“»\u00a0")[-1:]
    return last if last and last in ".:?" else ""


def test_a_deserialized_error_is_translated_with_its_values() -> None:
    error = errors.from_fault(errors.to_fault(errors.BadUrl("“{text}” is not a URL.", text="{x}")))
    assert str(error) == "“{x}” is not a URL."
    assert get_translator("de").gettext(error.sentence, **error.values) == "„{x}“ ist keine URL."


def test_untranslated_text_is_returned_unchanged() -> None:
    assert get_translator("de").gettext("") == ""
    assert get_translator("de").gettext("{never translated}") == "{never translated}"
    assert get_translator("xx").language == SOURCE_LANGUAGE
