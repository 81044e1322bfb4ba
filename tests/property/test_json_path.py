"""Properties of JSONPath: any text is parsed or refused, and paths agree with a plain definition."""

import contextlib
import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from service.feeds.pages.json_path import InvalidPath, parse_path, select_values

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
_BOUNDS = st.none() | st.integers(-6, 6)


def _inside(value: Any) -> list[Any]:
    children = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value, *(inner for child in children for inner in _inside(child))]


@given(st.text(st.sampled_from("$.[]*'\"\\0123-:,ab ?@()u"), max_size=30).map("$".__add__) | st.text(max_size=30))
@example("$[" + "-" * 28)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    with contextlib.suppress(InvalidPath):
        assert len(select_values({}, parse_path(text))) <= 1


@given(st.text(min_size=1, max_size=12))
def test_any_name_can_be_written_in_quotes(name: str) -> None:
    single = json.dumps(name)[1:-1].replace('\\"', '"').replace("'", "\\'")
    for path in (f"$[{json.dumps(name)}]", f"$['{single}']"):
        assert select_values({name: 1, "": 2}, parse_path(path)) == [1]


@given(_VALUES, st.sampled_from("abc"))
def test_descendants_are_all_values_inside_in_document_order(document: Any, name: str) -> None:
    expected = [value[name] for value in _inside(document) if isinstance(value, dict) and name in value]
    assert select_values(document, parse_path(f"$..{name}")) == expected
    assert len(select_values(document, parse_path("$..*"))) == len(_inside(document)) - 1


@given(st.lists(st.integers(), max_size=6), _BOUNDS, _BOUNDS, _BOUNDS.filter(lambda step: step != 0))
def test_slices_and_indexes_are_those_of_python(
    values: list[int], start: int | None, stop: int | None, step: int | None
) -> None:
    written = [str(bound) if bound is not None else "" for bound in (start, stop, step)]
    assert select_values(values, parse_path(f"$[{':'.join(written)}]")) == values[start:stop:step]
    if start is not None:
        expected = values[start : start + 1 or None] if start < 0 else values[start : start + 1]
        if -len(values) <= start:
            assert select_values(values, parse_path(f"$[{start}]")) == expected
