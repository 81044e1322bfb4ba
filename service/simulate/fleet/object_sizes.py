"""The memory of Python objects, counted object by object."""

import gc
from collections.abc import Iterable
from sys import getsizeof
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

import msgspec

_ALIGNMENT_BYTES = 16
_CODE = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)


def total_bytes(root: object, *, without: tuple[type, ...] = ()) -> int:
    """Return the size in bytes of ``root`` and of all objects that can be reached from it, each counted once.

    Classes, modules, functions, and objects of the types in ``without`` are not counted, nor is what only they refer
    to. Sizes are rounded up to the multiples of 16 bytes that CPython allocates.
    """
    seen, waiting, found = set[int](), [root], 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (*_CODE, *without)):
            continue
        seen.add(id(one))
        found += -(-getsizeof(one) // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        waiting.extend(_referents(one))
    return found


def _referents(one: object) -> Iterable[object]:
    # gc.get_referents returns nothing for structs that the garbage collector does not track.
    if isinstance(one, msgspec.Struct):
        return [getattr(one, name) for name in one.__struct_fields__]
    return gc.get_referents(one)
