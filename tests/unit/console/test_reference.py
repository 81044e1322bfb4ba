"""The API as people read it: every operation of the document, and every type that it speaks of."""

from service.console import api
from service.console.openapi import document
from service.console.reference import Part, reference

DOCUMENT = document(api.PREFIX, api.OPERATIONS)
FOUND = reference(DOCUMENT)


def test_every_operation_is_there_once() -> None:
    wanted = {(each.method, each.path) for each in api.OPERATIONS}
    found = [(each.method, each.path) for operations in FOUND.areas.values() for each in operations]
    assert (set(found), len(found)) == (wanted, len(wanted))


def test_every_type_that_is_named_is_described() -> None:
    operations = [each for operations in FOUND.areas.values() for each in operations]
    fields = [field for each in operations for field in each.fields]
    fields += [field for each in FOUND.types for field in each.fields]
    parts = [part for field in fields for part in field.parts]
    parts += [part for each in operations for part in (*each.takes, *each.gives)]
    named = {part.words for part in parts if part.is_type}
    assert named
    assert named <= {each.name for each in FOUND.types}
    assert all(each.fields or each.values or each.name == "Problem" for each in FOUND.types if each.name in named)


def test_what_an_operation_takes_and_gives_is_said_in_words() -> None:
    (aim,) = (each for each in FOUND.areas["fleet"] if each.id == "put_policy")
    assert (aim.takes, aim.gives) == ((Part("SetPolicy", is_type=True),), (Part("PolicyNow", is_type=True),))
    assert "409" in aim.problems
    (wanted,) = (each for each in FOUND.types if each.name == "SetPolicy")
    assert [(field.name, field.required) for field in wanted.fields] == [("aims", True), ("seen", False)]
    assert [part.words for part in wanted.fields[0].parts] == ["Aims", "or", "null"]
