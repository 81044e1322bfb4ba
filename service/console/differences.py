"""What a replacement changed, word by word. Pure."""

import re
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Final, Literal, NamedTuple

_WORD: Final = re.compile(r"\s*\S+")
_MOST_WORDS: Final = 400
_MOST_PAIRS: Final = 10_000
"""Of equal words in both texts, which is what a comparison's time grows with; texts that people write have fewer."""


class Piece(NamedTuple):
    """Some text that stayed, was taken away, or was added."""

    kind: Literal["same", "gone", "new"]
    text: str


def differences(before: str, after: str) -> list[Piece]:
    """Return both texts as one; of long ones, only their beginnings are compared.

    Texts that repeat the same words all the time are not compared, but stand one after the other.
    """
    old, new = _words(before), _words(after)
    in_old, in_new = Counter(old), Counter(new)
    if old != new and sum(count * in_new[word] for word, count in in_old.items()) > _MOST_PAIRS:
        return [Piece("gone", "".join(old)), Piece("new", "".join(new))]
    return list(_pieces(old, new))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.rstrip())[:_MOST_WORDS]


def _pieces(old: list[str], new: list[str]) -> Iterator[Piece]:
    for what, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            yield Piece("same", "".join(new[k:m]))
            continue
        if j > i:
            yield Piece("gone", "".join(old[i:j]))
        if m > k:
            yield Piece("new", "".join(new[k:m]))
