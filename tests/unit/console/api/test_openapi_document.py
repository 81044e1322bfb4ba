"""The OpenAPI document of the JSON API."""

import json
import re

from service.console.api.openapi_document import build_document
from service.console.api.operation_registry import OPERATIONS, PREFIX

CODE_REFERENCE = re.compile(r":[a-z]+:`|\b(?:service|bots|workers)\.[a-z]|``[a-z]+(?:_[a-z]+)*\.[a-z_]+``")
"""Roles of docstrings, and dotted names of the code."""


def test_descriptions_do_not_refer_to_the_code() -> None:
    document = json.dumps(build_document(PREFIX, OPERATIONS))
    assert [document[max(0, each.start() - 60) : each.end() + 60] for each in CODE_REFERENCE.finditer(document)] == []
