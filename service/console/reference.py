"""The API's document as people read it: operations by area, and what goes in and comes out. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

_CONTENT: Final = "content"
_SUCCESS: Final = "2"


class Part(msgspec.Struct, frozen=True):
    """What something is made of: plain words, or the name of a type that the reference has."""

    words: str
    is_type: bool = False


class Field(msgspec.Struct, frozen=True):
    """A value of a type, or a parameter; ``meaning`` is "" where the name says it."""

    name: str
    parts: tuple[Part, ...]
    required: bool
    meaning: str = ""


class Described(msgspec.Struct, frozen=True):
    """One operation. ``takes`` is what its body is, ``gives`` what it answers; of none they are empty."""

    id: str
    method: str
    path: str
    summary: str
    needs: str
    fields: tuple[Field, ...]
    takes: tuple[Part, ...]
    gives: tuple[Part, ...]
    problems: tuple[str, ...]


class Type(msgspec.Struct, frozen=True):
    """A type that operations take or give; one without fields is one of ``values``."""

    name: str
    meaning: str
    fields: tuple[Field, ...]
    values: tuple[str, ...]


class Reference(msgspec.Struct, frozen=True):
    """All operations by area, and the types they speak of by name."""

    areas: dict[str, list[Described]]
    types: tuple[Type, ...]


def reference(document: Mapping[str, Any]) -> Reference:
    """Return what an OpenAPI document of ours says."""
    areas: dict[str, list[Described]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            areas.setdefault(operation["tags"][0], []).append(_described(path, method, operation))
    schemas = document["components"]["schemas"]
    return Reference(areas, tuple(_type(name, schemas[name]) for name in sorted(schemas)))


def _described(path: str, method: str, operation: Mapping[str, Any]) -> Described:
    answers = operation["responses"]
    given: Mapping[str, Any] = next((answer for status, answer in answers.items() if status.startswith(_SUCCESS)), {})
    return Described(
        id=operation["operationId"],
        method=method.upper(),
        path=path,
        summary=operation["summary"],
        needs=operation["description"],
        fields=tuple(
            Field(each["name"], tuple(_parts(each["schema"])), each["required"], each["description"])
            for each in operation.get("parameters", ())
        ),
        takes=_body(operation.get("requestBody", {})),
        gives=_body(given),
        problems=tuple(status for status in answers if not status.startswith(_SUCCESS)),
    )


def _body(holder: Mapping[str, Any]) -> tuple[Part, ...]:
    for media_type, held in holder.get(_CONTENT, {}).items():
        return tuple(_parts(held["schema"])) if media_type == "application/json" else (Part(media_type),)
    return ()


def _type(name: str, schema: Mapping[str, Any]) -> Type:
    required = set(schema.get("required", ()))
    fields = tuple(
        Field(each, tuple(_parts(held)), each in required) for each, held in schema.get("properties", {}).items()
    )
    meaning = " ".join(schema.get("description", "").split())
    return Type(name, meaning, fields, tuple(map(str, schema.get("enum", ()))))


def _parts(schema: Mapping[str, Any]) -> Iterator[Part]:
    """Yield what a schema of ours says, as a phrase with types in it."""
    if "$ref" in schema:
        yield Part(schema["$ref"].rpartition("/")[2], is_type=True)
    elif "anyOf" in schema:
        for place, each in enumerate(schema["anyOf"]):
            if place:
                yield Part("or")
            yield from _parts(each)
    elif "enum" in schema:
        yield Part(" or ".join(f"“{value}”" for value in schema["enum"]))
    elif schema.get("type") == "array":
        yield Part("list of")
        yield from _items(schema)
    elif schema.get("type") == "object" and "additionalProperties" in schema:
        yield Part("by name")
        yield from _parts(schema["additionalProperties"])
    else:
        yield Part(str(schema.get("type", "anything")))


def _items(schema: Mapping[str, Any]) -> Iterator[Part]:
    for place, each in enumerate(schema.get("prefixItems", (schema.get("items") or {},))):
        if place:
            yield Part("and")
        yield from _parts(each)
