"""Strings that have broken programs before: the public list of them, and ours of what may break a bot.

Ours are shapes, markup, Unicode and verbs misused.
"""

import json
from pathlib import Path
from typing import Final

_HERE = Path(__file__).parent
_PUBLIC = _HERE / "vendor" / "blns" / "blns.json"
_OURS = _HERE / "naughty_strings.json"
_LONG = ("\N{FIRECRACKER}" * 2_000, "subscribe " + "a" * 5_000, "a " * 2_000)

STRINGS: Final[tuple[str, ...]] = tuple(
    dict.fromkeys(
        (*(each for path in (_OURS, _PUBLIC) for each in json.loads(path.read_text(encoding="utf-8"))), *_LONG)
    )
)
"""Some are empty, or no XML."""
