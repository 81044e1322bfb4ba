"""Snippets: one line of a text with the words of a query."""

from hypothesis import given
from hypothesis import strategies as st

from service.discovery.text_search.query_expansion import QueryWords
from service.discovery.text_search.snippets import MAX_SNIPPET_CHARS, best_snippet, make_snippet
from service.discovery.word_analysis import query_stems, words


def marked(text: str, *words: str) -> list[str]:
    snippet = make_snippet(text, lambda word: word in words)
    return [snippet.text[start:end] for start, end in snippet.hits]


def test_hits_are_marked_in_the_spelling_of_the_text() -> None:
    assert marked("Über „Vulkane“, C++ und node.js.", "vulkane", "c++", "node.js") == ["Vulkane", "C++", "node.js"]


def test_a_short_text_is_shown_in_one_line() -> None:
    assert make_snippet(" Two\n lines ", lambda _: False).text == "Two lines"


def test_the_part_with_most_different_words_is_shown() -> None:
    text = f"one {'filler ' * 60}one two three {'filler ' * 60}"
    snippet = make_snippet(text, lambda word: word in ("one", "two", "three"))
    assert "one two three" in snippet.text
    assert snippet.text.startswith("…")
    assert snippet.text.endswith("…")


def test_without_hits_the_beginning_is_shown() -> None:
    assert make_snippet("begin " * 100, lambda _: False).text.startswith("begin begin")


@given(st.text() | st.text("ab ,", max_size=2000), st.sampled_from(["a", "b", "ab"]))
def test_any_snippet_is_short_and_its_hits_are_in_it(text: str, word: str) -> None:
    snippet = make_snippet(text, lambda each: each == word)
    assert len(snippet.text) <= MAX_SNIPPET_CHARS
    assert "\n" not in snippet.text
    place = 0
    for start, end in snippet.hits:
        assert place <= start < end <= len(snippet.text)
        place = end


_TITLES = st.lists(
    st.text("aeunfFüö \n.", max_size=20)
    | st.text("aebnt.c+#x_y1 (-,", max_size=20)
    | st.sampled_from(["Für Häuser", "fuer haeuser", "(node.js)/c++", "a-3.12!", "the .net", "日本abc"]),
    max_size=5,
)


@given(
    _TITLES,
    st.sampled_from(["fuer", "haus", "neu", "an", "node", "c++", "3.12", ".net", "abc", "x_y", "b"]),
    st.sampled_from([(), ("fue",), ("u",)]),
)
def test_the_text_with_most_words_of_the_query_is_shown(texts: list[str], word: str, prefixes: tuple[str, ...]) -> None:
    asked = QueryWords(frozenset(query_stems(word)), prefixes)
    counts = [sum(map(asked.has, words(text))) for text in texts]
    best = texts[counts.index(max(counts))] if texts else ""
    assert best_snippet(texts, asked) == make_snippet(best, asked.has)
