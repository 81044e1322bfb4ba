"""``coronet admin``: every operation of the API as a command, made from the operation itself.

What stands in the path, and what the body must have, are arguments; all else are options. ``get_keys`` is ``keys``,
``post_key`` ``add-key``, ``put_`` and ``patch_`` are ``set-``, ``delete_`` ``remove-``; others are called as they are.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import quote

import msgspec

from service.console.openapi import File, Operation
from service.errors import UserError, WrongUse

_VERBS: Final = {"get_": "", "post_": "add-", "put_": "set-", "patch_": "set-", "delete_": "remove-"}
_HAND_TYPED: Final = {"put_my_password"}
"""What asks for secrets, which have no place in a command line: the page Settings does that."""


@dataclass(frozen=True)
class Call:
    """A request that a command line asks for. ``as_json``: show the answer as it is."""

    operation: Operation
    path: str
    query: dict[str, str]
    body: bytes | None
    media_type: str
    as_json: bool


def command(operation: Operation) -> str:
    """Return what an operation is called on the command line."""
    name = operation.handler.__name__
    for prefix, verb in _VERBS.items():
        if name.startswith(prefix):
            name = verb + name.removeprefix(prefix)
    return name.replace("_", "-")


def understood(operations: Sequence[Operation], arguments: Sequence[str]) -> Call | str:
    """Return the request that the arguments ask for, or the help that they ask for. Raises :class:`WrongUse`."""
    own = {command(each): each for each in operations if each.handler.__name__ not in _HAND_TYPED}
    if not arguments or arguments[0] in {"-h", "--help"}:
        return _all_commands(own)
    operation = own.get(arguments[0])
    if operation is None:
        raise WrongUse(f"No such command: {arguments[0]}. See coronet admin --help")
    parser = _parser(operation)
    if {"-h", "--help"} & set(arguments[1:]):
        return parser.format_help()
    return _call(operation, vars(parser.parse_args(arguments[1:])))


def _all_commands(own: dict[str, Operation]) -> str:
    width = max(map(len, own))
    lines = (f"  {name:{width}}  {_sentence(operation)}" for name, operation in sorted(own.items()))
    return "\n".join(
        [
            "Usage: coronet admin [--state DIRECTORY] COMMAND [ARGUMENTS]",
            "",
            "Look into a running Coronet, and step in, through the console's API.",
            "CORONET_CONSOLE_PUBLIC_URL says where that is, CORONET_CONSOLE_ADMIN_TOKEN holds its token or an API key;",
            "--state takes both from a `coronet up`. Each command has --help, and --json for programs.",
            "",
            "Commands:",
            *lines,
        ]
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise WrongUse(f"{self.prog}: {message}")


def _parser(operation: Operation) -> _Parser:
    parser = _Parser(prog=f"coronet admin {command(operation)}", description=_sentence(operation), allow_abbrev=False)
    for parameter in operation.parameters:
        name = parameter.name if parameter.place == "path" else f"--{parameter.name}"
        parser.add_argument(name, help=parameter.meaning.replace("%", "%%"))
    if isinstance(operation.body, File):
        parser.add_argument("file", help="What to send; - is standard input.")
    elif operation.body is not None:
        for field, required in _fields(operation.body):
            name = field.encode_name if required else f"--{field.encode_name.replace('_', '-')}"
            options: dict[str, Any] = {"nargs": "+"} if _is_list(field) else {}
            if not required:
                options["dest"] = field.encode_name
            parser.add_argument(name, **options)
    parser.add_argument("--json", action="store_true", dest="as_json", help="Print the answer as it is.")
    return parser


def _fields(kind: type[msgspec.Struct]) -> Iterator[tuple[msgspec.structs.FieldInfo, bool]]:
    """Yield what a body may have, and whether it must; of an inner value, what that may have."""
    for field in msgspec.structs.fields(kind):
        inner = _inner(field)
        if inner is not None:
            yield from _fields(inner)
        else:
            yield field, field.required


def _inner(field: msgspec.structs.FieldInfo) -> type[msgspec.Struct] | None:
    kinds = msgspec.inspect.type_info(field.type)
    found = kinds.types if isinstance(kinds, msgspec.inspect.UnionType) else (kinds,)
    return next((kind.cls for kind in found if isinstance(kind, msgspec.inspect.StructType)), None)


def _is_list(field: msgspec.structs.FieldInfo) -> bool:
    return isinstance(msgspec.inspect.type_info(field.type), (msgspec.inspect.VarTupleType, msgspec.inspect.ListType))


def _call(operation: Operation, given: dict[str, Any]) -> Call:
    path, query = operation.path, {}
    for parameter in operation.parameters:
        value = given[parameter.name]
        if parameter.place == "path":
            path = path.replace("{" + parameter.name + "}", quote(value, safe=""))
        elif value is not None:
            query[parameter.name] = value
    body, media_type = None, "application/json"
    if isinstance(operation.body, File):
        body, media_type = _file(given["file"]), operation.body.media_type
    elif operation.body is not None:
        body = msgspec.json.encode(_body(operation.body, given))
    return Call(operation, path, query, body, media_type, given["as_json"])


def _body(kind: type[msgspec.Struct], given: dict[str, Any]) -> dict[str, object]:
    found: dict[str, object] = {}
    for field in msgspec.structs.fields(kind):
        inner, value = _inner(field), given.get(field.encode_name)
        if inner is not None:
            found[field.encode_name] = _body(inner, given) or None
        elif value is not None:
            try:
                found[field.encode_name] = msgspec.to_builtins(msgspec.convert(value, field.type, strict=False))
            except msgspec.ValidationError as error:
                raise WrongUse(f"{field.encode_name}: {error}") from error
    return found


def _file(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        raise UserError(f"{name} cannot be read: {error}") from error


def _sentence(operation: Operation) -> str:
    return (operation.handler.__doc__ or "").strip().partition("\n")[0]
