"""Sizes and names of the production code: modules per folder, unique class names, plain module names."""

import ast
from collections import Counter, defaultdict

import pytest

from tests.architecture.sources import PROGRAMS, ROOT, parsed, python_files

MAX_MODULES_PER_FOLDER = 20
"""The aim is 15; beyond that, a folder needs sub-packages."""

# Class names that are defined more than once, each with the reason.
SHARED_CLASS_NAMES = {
    "Matrix": "a matrix of the discovery paper, and its row on a page",
    "MessageReceived": "an event of Corona nodes, and one of an XMPP session",
}

FORBIDDEN_WORDS = frozenset(
    {
        *("house", "desk", "counter", "keeper", "cushion", "mates", "elder", "undertaker", "understudy", "witness"),
        *("courtesy", "door", "charges", "posts", "lanes", "tracks", "trail", "looks", "hits", "wishes", "mine"),
        *("told", "heard", "asked", "found", "kept", "held", "meant", "wished", "spoken", "worded", "seen"),
        *("misc", "util", "utils", "helpers", "common", "stuff", "things"),
    }
)

# Words in -ing that are nouns or technical terms rather than gerunds.
NOUNS_IN_ING = frozenset(
    {
        *(
            "batching",
            "encoding",
            "formatting",
            "matching",
            "parsing",
            "polling",
            "ranking",
            "rendering",
            "resizing",
            "ring",
        ),
        *(
            "routing",
            "sampling",
            "sharding",
            "string",
            "tracing",
            "escaping",
            "paging",
            "warming",
            "spacing",
            "setting",
        ),
    }
)

# Participles that qualify a noun: "saved searches" are searches that a user saved.
PARTICIPLES_IN_NAMES = frozenset({"assigned", "embedded", "feed", "saved", "unchanged"})


def misnomers(module: str) -> list[str]:
    """Return the words of a module's name that are forbidden."""
    return [
        word
        for word in module.split("_")
        if word in FORBIDDEN_WORDS
        or (word.endswith("ing") and word not in NOUNS_IN_ING)
        or (word.endswith("ed") and word not in PARTICIPLES_IN_NAMES)
    ]


def test_no_folder_has_more_than_20_modules() -> None:
    modules = [path for path in python_files(*PROGRAMS) if path.stem != "__init__"]
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in modules)
    assert {folder: count for folder, count in counts.items() if count > MAX_MODULES_PER_FOLDER} == {}


def test_no_class_name_is_used_twice() -> None:
    """A reader who searches for a class finds one definition; exceptions are in ``SHARED_CLASS_NAMES``."""
    places = defaultdict(list)
    for path in python_files(*PROGRAMS):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    duplicates = {name: found for name, found in places.items() if len(found) > 1 and name not in SHARED_CLASS_NAMES}
    assert duplicates == {}


def test_modules_and_packages_have_plain_names() -> None:
    paths = python_files(*PROGRAMS)
    names = {path.parent.name if path.stem == "__init__" else path.stem for path in paths}
    assert {name: words for name in sorted(names) if (words := misnomers(name))} == {}


@pytest.mark.parametrize("name", ["hearing", "told", "poll_desk", "withheld_asked", "utils"])
def test_an_unclear_module_name_is_reported(name: str) -> None:
    assert misnomers(name)


@pytest.mark.parametrize("name", ["polling", "rate_limiter", "saved_searches", "unchanged_entries", "ring"])
def test_a_plain_module_name_is_accepted(name: str) -> None:
    assert misnomers(name) == []
