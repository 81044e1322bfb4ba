"""The loop of a parser process: one response to each request, until its input ends."""

import io

import msgspec

from service.errors import Fault
from service.feeds.sandbox.parser_process import ChildState, serve
from service.feeds.sandbox.protocol import (
    LENGTH_BYTES,
    Document,
    ParsedDocument,
    ParseDocument,
    ParserResponse,
    encode_frame,
)
from tests.support.feed_documents import item, rss


def test_every_request_gets_its_response() -> None:
    bodies = [rss([item("a")]), b""]
    jobs = [ParseDocument(Document(body, "https://example.com/", {})) for body in bodies]
    requests, answers = io.BytesIO(b"".join(map(encode_frame, jobs))), io.BytesIO()
    while not serve(requests, answers, "seccomp", ChildState()):
        pass  # the process of the tests is larger than a parser process may become
    answers.seek(0)
    found = []
    while length := answers.read(LENGTH_BYTES):
        found.append(
            msgspec.msgpack.decode(answers.read(int.from_bytes(length, "big")), type=ParserResponse[ParsedDocument])
        )
    first, second = found
    assert first.result is not None
    assert first.result.feed is not None
    assert first.result.feed.entries[0].title == "Title a"
    assert second.fault == Fault("empty-body", "The document is empty. Please check the address, or try again later.")
