"""The API reference page lists every operation and type of the OpenAPI document."""

import re

from service.console.api import operation_registry
from tests.support.console import Visitor


async def test_every_operation_is_listed_once(ada: Visitor) -> None:
    _, text = await ada.get("/api")
    found = re.findall(r'class="method">(\w+)</span> <code>([^<]+)</code>', text)
    assert sorted(found) == sorted((each.method, each.path) for each in operation_registry.OPERATIONS)


async def test_every_referenced_type_is_described(ada: Visitor) -> None:
    _, text = await ada.get("/api")
    named = set(re.findall(r'<a href="#(\w+)">\1</a>', text))
    described = re.findall(r'<section class="type" id="(\w+)">', text)
    assert named
    assert named <= {*described}
    assert len({*described}) == len(described)


async def test_an_operation_shows_request_body_and_response(ada: Visitor) -> None:
    _, text = await ada.get("/api")
    (aim,) = re.findall(r"PUT</span> <code>/policy</code>.*?</details>", text, re.DOTALL)
    assert '<dt>Request body</dt><dd><a href="#SetPolicy">SetPolicy</a></dd>' in aim
    assert '<dt>Response</dt><dd><a href="#CurrentPolicy">CurrentPolicy</a></dd>' in aim
    assert "409" in aim
    (wanted,) = re.findall(r'id="SetPolicy">.*?</section>', text, re.DOTALL)
    fields = re.findall(r"<dt><code>(\w+)</code></dt>\s*<dd>(.*?)</dd>", wanted, re.DOTALL)
    assert [name for name, _ in fields] == ["aims", "seen"]
    assert fields[0][1] == '<a href="#FleetObjective">FleetObjective</a> or null'
    assert ", optional" in fields[1][1]
    assert "list of string" in text
