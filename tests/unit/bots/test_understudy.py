"""Every request that a dialogue can make is known to the understudy: none is served as if it were harmless."""

import ast
import inspect
from typing import get_args

from bots import asking, understudy


def test_every_request_is_named() -> None:
    served = ast.parse(inspect.getsource(understudy)).body[-1]
    named = {
        node.cls.id for node in ast.walk(served) if isinstance(node, ast.MatchClass) and isinstance(node.cls, ast.Name)
    }
    assert named == {request.__name__ for request in get_args(asking.Request)}
