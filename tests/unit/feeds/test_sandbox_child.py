"""The child's loop: one answer for every job, until its input ends."""

import io

import msgspec

from service.errors import Fault
from service.feeds.sandbox_child import serve
from service.feeds.wire import LENGTH_BYTES, Answer, Job, frame
from tests.support.documents import item, rss


def test_every_job_gets_its_answer() -> None:
    jobs = [Job(rss([item("a")]), "https://example.com/", {}), Job(b"", "https://example.com/", {})]
    answers = io.BytesIO()
    serve(io.BytesIO(b"".join(map(frame, jobs))), answers)
    answers.seek(0)
    found = []
    while length := answers.read(LENGTH_BYTES):
        found.append(msgspec.msgpack.decode(answers.read(int.from_bytes(length, "big")), type=Answer))
    first, second = found
    assert first.reading is not None
    assert first.reading.feed is not None
    assert first.reading.feed.entries[0].title == "Title a"
    assert second.fault == Fault("empty-body", "There is nothing in the document.")
