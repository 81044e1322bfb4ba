"""What a replacement changed, word by word. Pure."""

import re
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Final, Literal, NamedTuple

_WORD: Final = re.compile(r"\s*\S+")
_MOST_WORDS: Final = 400


class Piece(NamedTuple):
    """Some text that stayed, was taken away, or was added."""

    kind: Literal["same", "gone", "new"]
    text: str


def differences(before: str, after: str) -> list[Piece]:
    """Return both texts as one; of long ones, only their beginnings are compared."""
    old, new = _WORD.findall(before)[:_MOST_WORDS], _WORD.findall(after)[:_MOST_WORDS]
    return list(_pieces(old, new))


def _pieces(old: list[str], new: list[str]) -> Iterator[Piece]:
    for what, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            yield Piece("same", "".join(new[k:m]))
            continue
        if j > i:
            yield Piece("gone", "".join(old[i:j]))
        if m > k:
            yield Piece("new", "".join(new[k:m]))
