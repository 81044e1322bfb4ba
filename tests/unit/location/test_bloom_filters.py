"""Bloom filters: stable hashing, counting, and widths that follow the measured number of documents."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.location.bloom_filters import (
    MAX_WIDTH,
    FilterShape,
    LocalFilter,
    best_hashes,
    document_mask,
    estimate_documents,
    false_positive_rate,
    next_shape,
    positions,
    width_for,
)

SHAPE = FilterShape(1, 1000, 7, 3)
NAMES = st.lists(st.text(max_size=5), max_size=30)


def test_hashes_are_the_same_in_every_process() -> None:
    assert positions("Uncle John's Band", SHAPE) == [406, 410, 224, 594, 800, 858, 849]


@given(NAMES, NAMES, NAMES)
def test_removed_documents_leave_no_bits(kept: list[str], gone: list[str], more: list[str]) -> None:
    own = LocalFilter(SHAPE, kept)
    before = own.bits
    passing = [document for document in gone + more if document not in own.documents]
    sets, clears = own.change(passing, ())
    assert clears == 0
    assert own.bits == before | sets
    assert own.change((), passing) == (0, sets)
    assert own.bits == before == LocalFilter(SHAPE, kept).bits
    assert all(own.bits & document_mask(document, SHAPE) == document_mask(document, SHAPE) for document in kept)


def test_repeated_additions_and_unknown_removals_have_no_effect() -> None:
    own = LocalFilter(SHAPE, ["a"])
    assert own.change(["a"], ["b"]) == (0, 0)


@pytest.mark.parametrize(("width", "hashes", "documents"), [(1000, 7, 100), (1000, 2, 300), (700, 5, 70)])
def test_the_measured_false_positive_rate_matches_the_formula(width: int, hashes: int, documents: int) -> None:
    shape = FilterShape(1, width, hashes, 1)
    own = LocalFilter(shape, [f"in {number}" for number in range(documents)])
    others = [document_mask(f"out {number}", shape) for number in range(20_000)]
    found = np.mean([own.bits & other == other for other in others])
    assert found == pytest.approx(false_positive_rate(width, hashes, documents), rel=0.35)
    assert estimate_documents(shape, own.bits.bit_count()) == pytest.approx(documents, rel=0.1)


@given(st.floats(1, 50_000), st.floats(0.001, 0.5))
def test_width_for_keeps_the_maximum_false_positive_rate(documents: float, wanted: float) -> None:
    width = width_for(documents, wanted)
    assert false_positive_rate(width, best_hashes(width, [documents]), documents) <= 1.15 * wanted or width == MAX_WIDTH


@given(st.floats(0, 1e5), st.floats(0, 1e5))
def test_filter_shapes_adapt_to_the_measured_documents_and_are_then_stable(one: float, other: float) -> None:
    shape = next_shape(FilterShape(1, 64, 1, 3), one, 0.01)
    grown = next_shape(shape, other, 0.01)
    assert next_shape(grown, other, 0.01) == grown
    assert grown >= shape
    assert grown.width >= min(MAX_WIDTH, width_for(other, 0.01))
    assert grown.width <= max(64, 8 * width_for(other, 0.01))


def test_a_full_filter_needs_the_maximum_width() -> None:
    assert estimate_documents(SHAPE, SHAPE.width) == float("inf")
    assert next_shape(SHAPE, float("inf"), 0.01).width == MAX_WIDTH
