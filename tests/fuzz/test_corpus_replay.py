"""The inputs that fuzzing found interesting violate no property."""

import pytest

from tests.fuzz.__main__ import KEPT, KEPT_BYTES, seeds
from tests.fuzz.targets import TARGETS, run


@pytest.mark.parametrize("target", TARGETS)
def test_the_fuzz_corpus_passes_all_targets(target: str) -> None:
    kept = [path.read_bytes() for path in sorted((KEPT / target).iterdir())]
    assert sum(map(len, kept)) <= KEPT_BYTES
    for data in kept or seeds(target)[:20]:
        run(target, data)
