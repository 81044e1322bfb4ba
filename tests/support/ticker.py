"""A channel that publishes often: versions with one entry each, in the words of this project's documents."""

import random
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from service.model import Change, ChannelId, Delta, Entry

_DOCUMENTS = Path(__file__).parents[2] / "docs"


class Ticker:
    """Versions of a channel, each with a title of about 55 characters and a summary of about ``summary_chars``."""

    def __init__(self, channel: ChannelId, gap_s: float, summary_chars: int, began_s: float) -> None:
        texts = sorted(_DOCUMENTS.rglob("*.md"))
        self._words = re.findall(r"[A-Za-z][a-z']+[.,]?", " ".join(path.read_text(encoding="utf-8") for path in texts))
        self._draw = random.Random(channel)  # noqa: S311 - the same each time
        self._channel = channel
        self._gap_s = gap_s
        self._summary_chars = summary_chars
        self._began_s = began_s

    def deltas(self, count: int) -> Iterator[Delta]:
        """Yield the deltas that make the versions 2 to ``count`` + 1."""
        for number in range(1, count + 1):
            at_s = self._began_s + number * self._gap_s
            title = self._passage(55)
            link = f"https://news.example.org/2026/11/{re.sub('[^a-z]+', '-', title.lower())}-{8_000_000 + 7 * number}"
            entry = Entry(
                sha256(link.encode()).hexdigest()[:14],
                title,
                link,
                self._passage(self._summary_chars),
                (),
                ("news",),
                at_s // 1,
            )
            detected_s = at_s + self._draw.random() * self._gap_s / 2
            yield Delta(self._channel, number, 0, detected_s, (Change("addition", entry),))

    def _passage(self, chars: int) -> str:
        """Return some consecutive words of the documents."""
        begin = self._draw.randrange(len(self._words) - chars)
        passage = ""
        while len(passage) < chars:
            passage, begin = f"{passage} {self._words[begin]}", begin + 1
        return passage.strip()
