"""The baseline: full-text search by FTS5 of SQLite, ranked by BM25 with weights for the columns.

The tokenizer is ``porter unicode61`` without diacritics, the only stemmer that FTS5 has. The syntax of queries is
translated: phrases, prefixes, ``OR`` and ``-word`` exist in FTS5; fields become conditions of SQL.
"""

import re
import sqlite3
from collections.abc import Sequence
from typing import Final

from tests.support.search_quality.corpus import Document

_TOKEN = re.compile(r'(lang|site|author|after):(?:"([^"]+)"|(\S+))|(-?)(?:"([^"]+)"|(\S+))')
_WEIGHTS: Final = (4.0, 1.0, 2.0, 1.0)
"""BM25 weights of title, text, tags and author."""
_CONDITIONS: Final = {"lang": "language = ?", "site": "site = ?", "author": "author = ?", "after": "date >= ?"}


class Fts5Search:
    """Entries in a table of SQLite in memory.

    If ``fills_up`` is true and too few entries contain all words, entries that contain some of the words follow.
    """

    def __init__(self, documents: Sequence[Document], *, fills_up: bool = False) -> None:
        self._fills_up = fills_up
        self._database = sqlite3.connect(":memory:")
        self._database.execute(
            "CREATE VIRTUAL TABLE entries USING fts5(title, text, tags, author, id UNINDEXED, language UNINDEXED, "
            "site UNINDEXED, date UNINDEXED, tokenize = 'porter unicode61 remove_diacritics 2')"
        )
        self._database.executemany(
            "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                (
                    each.title, each.text, " ".join(each.tags), each.author, each.id, each.channel.language,
                    each.channel.site, each.date.isoformat(),
                )
                for each in documents
            ),
        )  # fmt: skip

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def search(self, text: str, most: int, language: str = "") -> list[str]:
        """Return the ids of the ``most`` best entries, the best first; those in ``language`` precede others."""
        groups, excluded, conditions = _parse(text)
        expressions = [" AND ".join(f"({' OR '.join(group)})" for group in groups)]
        if self._fills_up and len(groups) > 1:
            expressions.append(" OR ".join(each for group in groups for each in group))
        found: dict[str, None] = {}
        for expression in expressions:
            if len(found) < most:
                wanted = f"({expression})" + "".join(f" NOT {each}" for each in excluded)
                found.update(dict.fromkeys(self._select(wanted, conditions, most, language)))
        return list(found)[:most]

    def _select(self, expression: str, conditions: Sequence[tuple[str, str]], most: int, language: str) -> list[str]:
        where = "".join(f" AND {_CONDITIONS[name]}" for name, _ in conditions)
        weights = ", ".join(map(str, _WEIGHTS))
        rows = self._database.execute(
            f"SELECT id FROM entries WHERE entries MATCH ?{where} "  # noqa: S608 - constants only
            f"ORDER BY language != ?, bm25(entries, {weights}), date DESC LIMIT ?",
            (expression, *(value for _, value in conditions), language, most),
        )
        return [name for (name,) in rows]


def _parse(text: str) -> tuple[list[list[str]], list[str], list[tuple[str, str]]]:
    """Return the groups of alternatives, the excluded expressions, and the conditions of a query."""
    groups: list[list[str]] = []
    excluded: list[str] = []
    conditions: list[tuple[str, str]] = []
    joins = False
    for field, quoted_value, value, minus, phrase, word in _TOKEN.findall(text):
        if field:
            conditions.append((field, quoted_value or value))
        elif word == "OR" and not minus:
            joins = True
        else:
            term = '"' + (phrase or word.rstrip("*")).replace('"', '""') + '"' + ("*" if word.endswith("*") else "")
            if minus:
                excluded.append(term)
            elif joins and groups:
                groups[-1].append(term)
            else:
                groups.append([term])
            joins = False
    return groups, excluded, conditions
