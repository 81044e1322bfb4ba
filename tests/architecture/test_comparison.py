"""The comparison with other tools: each answer has its proof, and the code has what it says of Coronet."""

import re

import pytest

from bots.commands.parser import SubscribeCommand, VerbCommand, parse
from bots.dialogue.settings_parser import apply_settings
from bots.i18n.translator import SOURCE_LANGUAGE, get_translator
from service.users.preferences import NO_PREFERENCES, Preferences
from tests.architecture.sources import ROOT

TEXT = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
OUR_HEAD = ["Feature", "In chat", "Where"]
_ANSWER = re.compile(r"yes|no|partly")
_PROVEN_ANSWER = re.compile(rf"(?:{_ANSWER.pattern}) \[([A-Z]\d+)\]|\?")
_PROOF = re.compile(r'^\[([A-Z]\d+)\]: https://\S+ "[^"]+"$', re.MULTILINE)
_CODE = re.compile(r"`([^`]+)`")


def tables() -> list[list[list[str]]]:
    """Return the tables about features: their rows without the line below the head."""
    blocks = [block.splitlines() for block in re.findall(r"(?:^\|.*\n)+", TEXT, re.MULTILINE)]
    rows = [[[cell.strip() for cell in line.strip("|").split("|")] for line in block] for block in blocks]
    return [[head, *others] for head, _, *others in rows if head[0] == "Feature"]


FEATURES = [row for head, *rows in tables() if head != OUR_HEAD for row in rows]
OURS = [row for head, *rows in tables() if head == OUR_HEAD for row in rows]
COMMANDS = sorted({command for _, chat, _ in OURS for command in _CODE.findall(chat)})


def is_understood(command: str) -> bool:
    """Return whether the bot understands a command in English, including the settings in it."""
    match parse(command):
        case SubscribeCommand(settings=settings):
            pass
        case VerbCommand(name="set", words=words):
            name, _, value = words.partition(" ")
            settings = ((name, value),)
        case VerbCommand(name=verb):
            return verb == command.split(maxsplit=1)[0]
        case _:
            return False
    return isinstance(apply_settings(NO_PREFERENCES, settings, get_translator(SOURCE_LANGUAGE)), Preferences)


def test_each_table_compares_the_same_tools() -> None:
    (tools,) = {tuple(head) for head, *_ in tables() if head != OUR_HEAD}
    assert tools[:2] == ("Feature", "Coronet")
    assert len(tools[2:]) == 10
    assert [row[0] for row in FEATURES if len(row) != len(tools)] == []


def test_each_answer_about_another_tool_has_a_proof() -> None:
    answers = [(row[0], answer) for row in FEATURES for answer in row[2:]]
    assert [each for each in answers if _PROVEN_ANSWER.fullmatch(each[1]) is None] == []
    named = {proven[1] for _, answer in answers if (proven := _PROVEN_ANSWER.fullmatch(answer)) and proven[1]}
    assert named == set(_PROOF.findall(TEXT))


def test_each_feature_names_the_file_in_coronet() -> None:
    assert [row[0] for row in FEATURES if _ANSWER.fullmatch(row[1]) is None] == []
    assert [row[0] for row in OURS] == [row[0] for row in FEATURES]
    assert [feature for feature, _, where in OURS if not _CODE.findall(where)] == []
    assert [path for *_, where in OURS for path in _CODE.findall(where) if not (ROOT / path).is_file()] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_in_the_comparison_is_understood(command: str) -> None:
    assert is_understood(command)


@pytest.mark.parametrize("command", ["sbscribe example.org", "forget feeds", "set #3 colour red", "set #3 when cheap"])
def test_another_command_is_not_understood(command: str) -> None:
    assert not is_understood(command)
