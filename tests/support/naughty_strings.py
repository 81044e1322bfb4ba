"""Strings that are known to break programs: the Big List of Naughty Strings, and a list for chat bots.

The latter has shapes, markup, Unicode and misused verbs.
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
"""Some strings are empty or not allowed in XML."""
