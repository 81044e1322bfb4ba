"""What fuzzing found interesting keeps every promise."""

import pytest

from tests.fuzz.__main__ import KEPT, KEPT_BYTES, seeds
from tests.fuzz.targets import TARGETS, run


@pytest.mark.parametrize("target", TARGETS)
def test_the_kept_inputs_break_no_promise(target: str) -> None:
    kept = [path.read_bytes() for path in sorted((KEPT / target).iterdir())]
    assert sum(map(len, kept)) <= KEPT_BYTES
    for data in kept or seeds(target)[:20]:
        run(target, data)
