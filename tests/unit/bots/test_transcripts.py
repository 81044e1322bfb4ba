"""Conversations in ``transcripts``: in English, and in a folder for each other language.

Lines after "> " are commands; the lines up to the next one are the reply.
``python -m tests.unit.bots.test_transcripts`` writes the replies again, to be reviewed in the difference.
"""

import re
from pathlib import Path

import pytest
from msgspec import structs

from bots.commands.verb_synonyms import VERB_OF
from bots.i18n.translator import LANGUAGES, SOURCE_LANGUAGE
from tests.unit.bots.sample_web import visitor

FOLDER = Path(__file__).parent / "transcripts"
TRANSCRIPTS = sorted(FOLDER.rglob("*.txt"))
PATIENT = {"errors", "parts", "why_rarely"}
"""Conversations in which more new URLs are looked at than one person may have looked at."""


def language_of(path: Path) -> str:
    return SOURCE_LANGUAGE if path.parent == FOLDER else path.parent.name


def said(path: Path) -> list[str]:
    return re.findall("^> (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)


def played(path: Path) -> str:
    """Return the conversation with the answers that are given now."""
    person = visitor()
    if path.stem in PATIENT:
        person.settings = person.settings.model_copy(update={"max_new_urls_per_hour": 100})
    exchanges = []
    for line in said(path):
        person.user_settings = structs.replace(person.user_settings, client_language=language_of(path))
        exchanges.append(f"> {line}\n{person.say(line)}\n")
    return "\n".join(exchanges)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: f"{language_of(path)}-{path.stem}")
def test_conversations_match_their_transcripts(path: Path) -> None:
    exchanges = played(path).split("\n\n> ")
    assert [each.strip() for each in exchanges] == [each.strip() for each in _written(path)]


def _written(path: Path) -> list[str]:
    return re.split(r"\n+> ", path.read_text(encoding="utf-8"))


def test_every_language_has_the_same_transcripts() -> None:
    english = {path.name for path in TRANSCRIPTS if language_of(path) == SOURCE_LANGUAGE}
    for language in LANGUAGES:
        assert {path.name for path in TRANSCRIPTS if language_of(path) == language} == english


def test_every_verb_synonym_occurs_in_a_transcript() -> None:
    heard = {line.split()[0].lower() for path in TRANSCRIPTS for line in said(path)}
    assert set(VERB_OF) <= heard


if __name__ == "__main__":
    for transcript in TRANSCRIPTS:
        transcript.write_text(played(transcript), encoding="utf-8")
