"""Word-by-word differences of two versions of a text."""

import re
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Final, Literal, NamedTuple

_WORD: Final = re.compile(r"\s*\S+")
_MAX_WORDS: Final = 400
_MAX_EQUAL_PAIRS: Final = 10_000
"""Maximum number of pairs of equal words in two texts that are compared, because the time grows with it."""


class TextChange(NamedTuple):
    """A piece of text that is the same in both versions (``same``), was removed, or was added."""

    kind: Literal["same", "removed", "added"]
    text: str


def differences(before: str, after: str) -> list[TextChange]:
    """Return the word-by-word differences of two texts; of long texts, only the first 400 words are compared.

    Texts with very many repeated words are not compared: ``before`` is returned as removed and ``after`` as added.
    """
    old, new = _words(before), _words(after)
    in_old, in_new = Counter(old), Counter(new)
    if old != new and sum(count * in_new[word] for word, count in in_old.items()) > _MAX_EQUAL_PAIRS:
        return [TextChange("removed", "".join(old)), TextChange("added", "".join(new))]
    return list(_text_changes(old, new))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.rstrip())[:_MAX_WORDS]


def _text_changes(old: list[str], new: list[str]) -> Iterator[TextChange]:
    for opcode, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if opcode == "equal":
            yield TextChange("same", "".join(new[k:m]))
            continue
        if j > i:
            yield TextChange("removed", "".join(old[i:j]))
        if m > k:
            yield TextChange("added", "".join(new[k:m]))
