"""One target under libFuzzer: ``python -m tests.fuzz.harness TARGET [libFuzzer's arguments]``. Ends the process."""

import sys
from functools import partial

import atheris  # type: ignore[import-untyped]  # it ships no types

with atheris.instrument_imports(include=["service.feeds", "feedparser"]):
    from tests.fuzz.targets import run

if __name__ == "__main__":
    target = sys.argv.pop(1)
    atheris.Setup(sys.argv, partial(run, target))
    atheris.Fuzz()
