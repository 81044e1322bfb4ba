"""JSON as people read it in a terminal: lists as tables, all else as lines. Pure; no text can control the terminal."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

_A_DATE_S: Final = 1e9
"""Seconds since 1970; lengths of time are shorter."""
_WIDEST: Final = 60


def told(value: object) -> str:
    """Return an answer of the API as text."""
    if isinstance(value, Mapping) and isinstance(value.get("items"), list):
        rest = {name: held for name, held in value.items() if name not in {"items", "next"} and held not in ("", None)}
        said = [_table(value["items"]), *_lines(rest, "")]
        if value.get("next"):
            said.append(f"There is more: --cursor {_text('', value['next'])}")
        return "\n".join(said)
    return "\n".join(_lines(value, "")) if isinstance(value, Mapping) else _text("", value)


def _table(items: Sequence[Any]) -> str:
    rows = [_flat(item) for item in items]
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not rows:
        return "Nothing."
    cells = [names, *([_text(name, row.get(name, ""))[:_WIDEST] for name in names] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(names))]
    return "\n".join(
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def _flat(item: object) -> dict[str, object]:
    """Return an item's values by name, those of an inner value as its own; lists only if they are of plain values."""
    if not isinstance(item, Mapping):
        return {"": item}
    found: dict[str, object] = {}
    for name, value in item.items():
        if isinstance(value, Mapping):
            found |= _flat(value)
        elif not isinstance(value, list) or all(not isinstance(each, (list, Mapping)) for each in value):
            found[name] = value
    return found


def _lines(value: Mapping[str, object], indent: str) -> list[str]:
    said = []
    for name, held in value.items():
        if isinstance(held, Mapping):
            said += [f"{indent}{name}:", *_lines(held, indent + "  ")]
        elif isinstance(held, list) and held and isinstance(held[0], Mapping):
            said += [f"{indent}{name}:", *(f"{indent}  {line}" for line in _table(held).splitlines())]
        else:
            said.append(f"{indent}{name}: {_text(name, held)}")
    return said


def _text(name: str, value: object) -> str:
    if isinstance(value, list):
        found = ", ".join(_text(name, each) for each in value)
    elif value is None or isinstance(value, bool):
        found = {None: "-", True: "yes", False: "no"}[value]
    elif isinstance(value, float) and name.endswith("_s") and value >= _A_DATE_S:
        found = datetime.fromtimestamp(value, UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
    else:
        found = f"{value:,.6g}" if isinstance(value, float) else str(value)
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in found)
