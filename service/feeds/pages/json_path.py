"""JSONPath (RFC 9535) without filters and functions: selects values in a JSON document.

A path consists of ``$`` and segments. Each segment has one or more selectors:

- child segments: ``.name``, ``.*``, ``['name']``, ``[0]``, ``[-1]``, ``[1:5:2]``, ``[*]``, ``[0, 'name']``
- descendant segments: ``..name``, ``..*``, ``..[0]``

The work and the number of selected values are limited.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

MAX_VALUES: Final = 100_000
"""Maximum number of values that a segment may select."""
MAX_STEPS: Final = 1_000_000
"""Maximum number of values that are visited while a path is evaluated."""

_NAME = re.compile(r"[^\W\d]\w*")
_INDEX = r"-?(?:0|[1-9][0-9]{0,15})"
_SELECTOR = re.compile(
    rf" *(?:(?P<all>\*)|'(?P<single>(?:[^'\\]|\\.)*)'|\"(?P<double>(?:[^\"\\]|\\.)*)\""
    rf"|(?P<start>{_INDEX})? *(?P<slice>:) *(?P<stop>{_INDEX})?(?: *: *(?P<step>{_INDEX})?)?|(?P<index>{_INDEX})"
    r") *(?P<end>[,\]])"
)
_ESCAPE_OR_QUOTE = re.compile(r"\\(.)|\"")

Selector = str | int | slice | None
"""The name of a member, the index of an element, a slice of an array, or all children (None)."""


class Segment(NamedTuple):
    """The selectors that are applied to each value, or, if ``is_descendant``, also to all values inside it."""

    selectors: tuple[Selector, ...]
    is_descendant: bool


class InvalidPath(Exception):
    """The path is invalid; ``rest`` is the part that could not be read."""

    def __init__(self, rest: str) -> None:
        super().__init__(rest)
        self.rest = rest


class TooManyValues(Exception):
    """The path visits or selects more values than are allowed."""


def parse_path(text: str) -> tuple[Segment, ...]:
    """Parse a JSONPath. Raises :class:`InvalidPath`, also for filters and functions."""
    if not text.startswith("$"):
        raise InvalidPath(text)
    segments = []
    position = 1
    while position < len(text):
        is_descendant = text.startswith("..", position)
        after_dots = position + (2 if is_descendant else text.startswith(".", position))
        selectors: tuple[Selector, ...]
        if text.startswith("[", after_dots) and after_dots != position + 1:
            selectors, end = _bracketed(text, after_dots + 1)
        elif after_dots == position:
            raise InvalidPath(text[position:])
        elif text.startswith("*", after_dots):
            selectors, end = (None,), after_dots + 1
        elif (name := _NAME.match(text, after_dots)) is not None:
            selectors, end = (name[0],), name.end()
        else:
            raise InvalidPath(text[position:])
        segments.append(Segment(selectors, is_descendant))
        position = end
    return tuple(segments)


def _bracketed(text: str, position: int) -> tuple[tuple[Selector, ...], int]:
    """Parse the selectors between brackets; return them and the position after the closing bracket.

    ``position`` is that of the first selector.
    """
    selectors = []
    while (found := _SELECTOR.match(text, position)) is not None:
        selectors.append(_selector(found, text[position:]))
        position = found.end()
        if found["end"] == "]":
            return tuple(selectors), position
    raise InvalidPath(text[position:])


def _selector(found: re.Match[str], rest: str) -> Selector:
    if found["all"]:
        return None
    if found["slice"]:
        start, stop, step = (int(found[name]) if found[name] else None for name in ("start", "stop", "step"))
        return slice(start, stop, step)
    if found["index"]:
        return int(found["index"])
    quoted = found["single"] if found["single"] is not None else found["double"]
    body = _ESCAPE_OR_QUOTE.sub(lambda each: "'" if each[1] == "'" else '\\"' if each[0] == '"' else each[0], quoted)
    try:
        return msgspec.json.decode(f'"{body}"', type=str)
    except msgspec.DecodeError as error:
        raise InvalidPath(rest) from error


def select_values(document: Any, path: Sequence[Segment]) -> list[Any]:
    """Return the values in the decoded JSON ``document`` that ``path`` selects, in the order of RFC 9535.

    Raises :class:`TooManyValues` if the path selects too many values, or takes too many steps.
    """
    values, steps = [document], 0
    for segment in path:
        selected: list[Any] = []
        for value in _descendants(values) if segment.is_descendant else values:
            for selector in segment.selectors:
                selected.extend(_children(value, selector))
            steps += len(segment.selectors)
            if len(selected) > MAX_VALUES or steps > MAX_STEPS:
                raise TooManyValues
        values = selected
    return values


def _children(value: Any, selector: Selector) -> Sequence[Any]:
    match selector, value:
        case None, dict():
            return list(value.values())
        case None, list():
            return value
        case str(), dict():
            return (value[selector],) if selector in value else ()
        case int(), list():
            return (value[selector],) if -len(value) <= selector < len(value) else ()
        case slice(step=step), list():
            return value[selector] if step != 0 else ()
    return ()


def _descendants(values: Sequence[Any]) -> Iterator[Any]:
    """Yield each of ``values``, each followed by all values inside it, in document order."""
    pending = list(reversed(values))
    while pending:
        value = pending.pop()
        yield value
        pending.extend(reversed(_children(value, None)))
