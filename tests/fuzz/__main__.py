"""Fuzzing, guided by coverage: ``python -m tests.fuzz TARGET [--seconds N]``, for the targets in ``targets``.

Begins with the kept corpus and with documents of every dialect. An input that breaks a promise is left as
``crash-*``, ``timeout-*`` or ``oom-*`` in the folder that is named at the start; make it a test first.
With ``--keep`` the smallest inputs that reach something new become the kept corpus, up to 60 kB.
"""

import argparse
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from tests.fuzz.targets import CUT, TARGETS, name_of
from tests.support.feed_corpus import defects, wild
from tests.support.feed_dialects import DIALECTS
from tests.support.feed_documents import page

KEPT = Path(__file__).parent / "corpus"
KEPT_BYTES = 60_000
INPUT_BYTES = 4_096
LIMITS = ["-timeout=10", "-rss_limit_mb=1024", f"-max_len={INPUT_BYTES}"]  # the sandbox waits for as long


def seeds(target: str) -> list[bytes]:
    """Return the initial inputs."""
    documents = [dialect.text.encode() for dialect in DIALECTS.values()]
    documents += [sample.body for samples in (wild, defects) for sample in samples() if len(sample.body) < INPUT_BYTES]
    if target == "identity":
        documents = [CUT.join(pair) for pair in pairwise(documents)]
    if target == "page":
        pages = [page(title=str(number)) for number in range(3)]
        return [CUT.join(pair) for pair in pairwise((*pages, *documents))]
    return documents


def keep(target: str, found: Path) -> None:
    """Replace the stored corpus by the smallest inputs; libFuzzer keeps only those that add coverage."""
    folder = KEPT / target
    for old in folder.iterdir():
        old.unlink()
    left = KEPT_BYTES
    for data in sorted((each.read_bytes() for each in found.iterdir()), key=len):
        left -= len(data)
        if left < 0:
            break
        (folder / name_of(data)).write_bytes(data)


def main() -> int:
    """Fuzz in a child process, which libFuzzer ends, then optionally store new inputs; return its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{given.target}-"))
    inputs = folder / "inputs"
    inputs.mkdir()
    for data in (*seeds(given.target), *(kept.read_bytes() for kept in (KEPT / given.target).iterdir())):
        (inputs / name_of(data)).write_bytes(data)
    print(f"Findings go to {folder}.", flush=True)  # noqa: T201 - whoever started it wants to know
    command = [sys.executable, "-m", "tests.fuzz.harness", given.target, *LIMITS, f"-artifact_prefix={folder}/"]
    status = subprocess.run([*command, f"-max_total_time={given.seconds}", str(inputs)], check=False)
    if given.keep and not status.returncode:
        keep(given.target, inputs)
    return status.returncode


if __name__ == "__main__":
    sys.exit(main())
