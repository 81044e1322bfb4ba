"""Strings that have broken programs before, as commands for a bot: shapes, markup, Unicode, verbs misused."""

import json
from pathlib import Path
from typing import Final

_LONG = ("\N{FIRECRACKER}" * 2_000, "subscribe " + "a" * 5_000, "a " * 2_000)

STRINGS: Final[tuple[str, ...]] = (
    *json.loads(Path(__file__).with_name("naughty.json").read_text(encoding="utf-8")),
    *_LONG,
)
