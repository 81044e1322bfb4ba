"""The query language of find and watch: what a query means, what is refused, and in which words."""

from datetime import date

import pytest

from service.discovery.queries.query import Condition, PairCondition, PhraseCondition, WordCondition
from service.discovery.queries.query_parser import MAX_CONDITIONS, parse_query, parse_watch, saved_search_text
from service.discovery.queries.saved_searches import PatternCondition, QueryCondition
from service.errors import BadQuery
from service.feeds.canonical_urls import channel_id

TODAY = date(2026, 11, 23)
Groups = tuple[tuple[Condition, ...], ...]


def word(text: str, *, in_title: bool = False) -> WordCondition:
    return WordCondition(text, in_title=in_title)


def phrase(text: str, *, in_title: bool = False) -> PhraseCondition:
    return PhraseCondition(tuple(text.split()), in_title)


def pair(text: str) -> PairCondition:
    return PairCondition(text)


def required(*conditions: Condition) -> Groups:
    """Groups of one condition each."""
    return tuple((condition,) for condition in conditions)


def site(host: str) -> tuple[PairCondition, PairCondition]:
    return pair(f"domain={host}"), pair(f"host={host}")


@pytest.mark.parametrize(
    ("text", "all_of"),
    [
        ("  asyncio   Python\n", required(word("asyncio"), word("python"))),
        ("Café über", required(word("cafe"), word("uber"))),
        ('"memory safety"', required(phrase("memory safety"))),
        ("„künstliche Intelligenz“", required(phrase("kunstliche intelligenz"))),
        ("« l'été »", required(phrase("l ete"))),
        ('"to be or not to be, Hamlet"', required(phrase("to be or not to be hamlet"))),
        ('"rust" lang', required(phrase("rust"), word("lang"))),
        ("pyth*", required(WordCondition("pyth", is_prefix=True))),
        ("Pyth*,", required(WordCondition("pyth", is_prefix=True))),
        ("rust OR go async", ((word("rust"), word("go")), (word("async"),))),
        ("rust | go | zig", ((word("rust"), word("go"), word("zig")),)),
        ("rust|go", ((word("rust"), word("go")),)),
        ("Rost ODER Go", ((word("rost"), word("go")),)),
        ('"one two" OR tag:x OR pyth*', ((phrase("one two"), pair("tag=x"), WordCondition("pyth", is_prefix=True)),)),
        ("title:rust title:“in Rust”", required(word("rust", in_title=True), phrase("in rust", in_title=True))),
        ("title:pyth*", required(WordCondition("pyth", is_prefix=True, in_title=True))),
        ("title:e-mail", required(phrase("e mail", in_title=True))),
        ("tag:python lang=en", required(pair("tag=python"), pair("lang=en"))),
        ("TAG=Python tag:PYTHON", required(pair("tag=python"))),
        ("tag = python", required(pair("tag=python"))),
        ("tag:python, lang:de", required(pair("tag=python"), pair("lang=de"))),
        ("author:“Jane Doe”", required(pair("author=jane doe"))),
        (r'author="J. \"Jim\" \\ Doe"', required(pair(r'author=j. "jim" \ doe'))),
        ("Sprache:deutsch Schlagwort:x titel:yy", required(pair("lang=de"), pair("tag=x"), word("yy", in_title=True))),
        ("langue:français", required(pair("lang=fr"))),
        ("lingua:tedesco titolo:yy", required(pair("lang=de"), word("yy", in_title=True))),
        ("idioma:holandês etiqueta:x", required(pair("lang=nl"), pair("tag=x"))),
        ("taal:pools trefwoord:x", required(pair("lang=pl"), pair("tag=x"))),
        ("język:portugalski tytuł:yy", required(pair("lang=pt"), word("yy", in_title=True))),
        ("Rost LUB Go", ((word("rost"), word("go")),)),
        ("lang=en-GB", required(pair("region=gb of lang=en"))),
        ("region=gb lang=en", required(pair("region=gb of lang=en"), pair("lang=en"))),
        ("lang:en OR lang:de", ((pair("lang=en"), pair("lang=de")),)),
        (
            "version=6.4 generator=WordPress",
            required(pair("version=6.4 of generator=wordpress"), pair("generator=wordpress")),
        ),
        ("site:example.org", (site("example.org"),)),
        ("site:https://example.org/", (site("example.org"),)),
        ("site:.org", required(pair("tld=org"))),
        ("tld:org host=Bücher.example", required(pair("tld=org"), pair("host=xn--bcher-kva.example"))),
        ("type:page news", required(pair("type=page"), word("news"))),
        ("updates=daily x1", required(pair("updates=daily"), word("x1"))),
        ("#rust", ((pair("tag=rust"), word("rust")),)),
        ("heise.de", ((word("heise.de"), *site("heise.de")),)),
        ("the rust of it", required(word("rust"))),
        ("版本发布", required(phrase("版本 本发 发布"))),
    ],
)  # fmt: skip
def test_required_conditions_are_parsed(text: str, all_of: Groups) -> None:
    query = parse_query(text, TODAY)
    assert (query.about, query.all_of, query.none_of, query.after, query.limit) == ("channel", all_of, (), None, 10)


@pytest.mark.parametrize(
    ("text", "none_of"),
    [
        ("news -sport", (word("sport"),)),
        ('news -"press release"', (phrase("press release"),)),
        ("news -tag=sport -lang:de", (pair("tag=sport"), pair("lang=de"))),
        ("news -lang:en-GB", (pair("region=gb of lang=en"),)),
        ("news -site:example.org", site("example.org")),
        ("news -pyth*", (WordCondition("pyth", is_prefix=True),)),
        ("news -title:sport", (word("sport", in_title=True),)),
        ("news -#sport", (pair("tag=sport"), word("sport"))),
        ("news \N{EN DASH}sport", (word("sport"),)),
        ("news \N{MINUS SIGN}sport", (word("sport"),)),
        ("news -e-mail", (phrase("e mail"),)),
    ],
)
def test_excluded_conditions_are_parsed(text: str, none_of: tuple[Condition, ...]) -> None:
    query = parse_query(text, TODAY)
    assert (query.all_of, query.none_of) == (required(word("news")), none_of)


@pytest.mark.parametrize(
    ("text", "all_of"),
    [
        ("rust or go", required(word("rust"), word("go"))),
        ("Trick Or Treat", required(word("trick"), word("treat"))),
        ("rust and go", required(word("rust"), word("go"))),
        ("rust AND go", required(word("rust"), word("go"))),
        ("e-mail", required(phrase("e mail"))),
        ("state-of-the-art", required(phrase("state of the art"))),
        ("covid-19 vaccine", required(phrase("covid 19"), word("vaccine"))),
        ("TCP/IP", required(phrase("tcp ip"))),
        ("C++ C# .net node.js", ((word("c++"),), (word("c#"),), (word(".net"),), (word("node.js"), *site("node.js")))),
        ("Notepad++ Disney+ +49", required(word("notepad"), word("disney"), word("49"))),
        ("news - today — now", required(word("news"), word("today"), word("now"))),
        ("git push --force", required(word("git"), word("push"), word("force"))),
        ("10:30 news", required(phrase("10 30"), word("news"))),
        ("Rust 1.75: what's new?", required(word("rust"), word("1.75"), word("new"))),
        ("Re: news", required(word("re"), word("news"))),
        ("Microsoft Word: tips", required(word("microsoft"), word("word"), word("tips"))),
        ("std::vector", required(phrase("std vector"))),
        (r"C:\temp", required(phrase("c temp"))),
        ("O'Reilly l'été Rust\N{RIGHT SINGLE QUOTATION MARK}s", required(word("reilly"), word("ete"), word("rust"))),
        ("rock'n'roll", required(phrase("rock n roll"))),
        ("“Rust” (programming language)", required(phrase("rust"), word("programming"), word("language"))),
        ("[Solved] print()", required(word("solved"), word("print"))),
        ('a 27" monitor', required(word("27"), word("monitor"))),
        ("research & development", required(word("research"), word("development"))),
        ("50% off!", required(word("50"), word("off"))),
        ("¿qué es Rust?", required(word("rust"))),
        ("jane@example.org", required(phrase("jane example.org"))),
        ("/etc/passwd", required(phrase("etc passwd"))),
        ("x = y2", required(word("y2"))),
        ("tea 🍵 time", required(word("tea"), word("time"))),
        ("near the sea", required(word("near"), word("sea"))),
        ("near/far", required(phrase("near far"))),
        ("a -> b2", required(word("b2"))),
        ("limit switch", required(word("limit"), word("switch"))),
    ],
)
def test_ordinary_words_and_punctuation_are_not_query_operators(text: str, all_of: Groups) -> None:
    query = parse_query(text, TODAY)
    assert (query.all_of, query.none_of) == (all_of, ())


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("2026-11-01", date(2026, 11, 1)),
        ("2026-11", date(2026, 11, 1)),
        ("2025", date(2025, 1, 1)),
        ("1.11.2026", date(2026, 11, 1)),
        ("3d", date(2026, 11, 20)),
        ("2w", date(2026, 11, 9)),
        ("1m", date(2026, 10, 24)),
        ("1Y", date(2025, 11, 23)),
        ("yesterday", date(2026, 11, 22)),
        ("heute", TODAY),
        ("9999y", date(1970, 1, 1)),
        ("0001-01-01", date(1970, 1, 1)),
    ],
)
def test_after_finds_entries_from_a_day_on(text: str, after: date) -> None:
    for name in ("after", "since", "seit", "depuis", "desde"):
        query = parse_query(f"rust {name}:{text}", TODAY)
        assert (query.about, query.all_of, query.after) == ("entry", required(word("rust")), after)


def test_a_query_can_be_for_entries_and_limited() -> None:
    for text in ("type:entry tag=x limit=50", "tag:x type:article limit 50", "limit:50 tag:x type=Eintrag"):
        query = parse_query(text, TODAY)
        assert (query.about, query.all_of, query.limit) == ("entry", required(pair("tag=x")), 50)
    assert parse_query("type:channel x1", TODAY).all_of == required(word("x1"))


def test_the_channel_attribute_accepts_any_form_of_the_url() -> None:
    cid = channel_id("https://example.org/feed")
    for text in ("channel=HTTPS://Example.org/feed?utm_source=x", "channel:https://example.org/feed"):
        assert parse_query(f"type:entry {text}", TODAY).all_of == required(pair(f"channel={cid}"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(rust OR go) async", "Parentheses aren't supported"),
        ("async (rust OR go)", "Parentheses aren't supported"),
        ("(tag:rust)", "Parentheses aren't supported"),
        ("news -(sport OR ads)", "Parentheses aren't supported"),
        ("news -(sport ads)", "Parentheses aren't supported"),
        ("(lang:en OR lang:de)", "Parentheses aren't supported"),
        ("rust NOT game", "“NOT” isn't supported. To leave something out, put a minus before it: `-word`"),
        ("rust AND NOT game", "“NOT” isn't supported"),
        ("Rost NICHT Spiel", "“NICHT” isn't supported"),
        ("rust !game", "“!” isn't supported"),
        ('rust !"a game"', "“!” isn't supported"),
        ("rust AND go OR zig", "Please leave out “AND”; it isn't needed next to OR"),
        ("rust NEAR go", "“NEAR” isn't supported. Put words that belong together in quotation marks"),
        ("rust NEAR/5 go", "“NEAR” isn't supported"),
        ('NEAR("rust" "go", 5)', "“NEAR” isn't supported"),
        ("rust AROUND(3) go", "“AROUND” isn't supported"),
        ("rust near/5 go", "“near” isn't supported"),
        ("near(rust,go)", "“near” isn't supported"),
        ("rust around(3) go", "“around” isn't supported"),
        ('"rust go"~5', "“~5” isn't supported. Put words that belong together"),
        ("~rust", "Please leave out “~”; it isn't supported."),
        ("rusty~", "Please leave out “~”; it isn't supported."),
        ("rusty~1", "Please leave out “~”; it isn't supported."),
        ("rust^2 go", "Please leave out “^”; it isn't supported."),
        ('"rust go"^2', "Please leave out “^”; it isn't supported."),
        ("^rust", "Please leave out “^”; it isn't supported."),
        ("+rust go", "Please leave out “+”; it isn't needed."),
        ('+"rust go"', "Please leave out “+”; it isn't needed."),
        ("ru*t", "“*” can't be used inside a word"),
        ("*rust", "“*” can't be used inside a word"),
        ("r?st", "“?” can't be used inside a word"),
        ("*", "“*” on its own finds nothing. `discover`"),
        ("ru*", "at least 3 letters before “*”"),
        ("e-mai*", "at the end of a single word"),
        ('"rust prog*"', "doesn't work within quotation marks"),
        ('"rust"*', "doesn't work within quotation marks"),
        ("tag:pyth*", "“*” only works with words, not with “tag:”"),
        ("title:p*n", "can't be used inside a word"),
        ("/ru(s|t)+/", "Regular expressions only work with `filter` and, on their own, with `watch /…/`"),
        ("news /rust.*/i", "Regular expressions only work"),
        (
            "before:2026-11-01 rust",
            "“before:” isn't supported, but you can search from a certain day on: `after:2026-11-01`",
        ),
        ("vor:3d rust", "“vor:” isn't supported"),
        ("[2020 TO 2021]", "“[… TO …]” isn't supported: I can't compare values"),
        ("date>2020 rust", "I can't compare values"),
        (
            "https://example.org/feed",
            "To subscribe to an address, send it on its own. To search within a site, write site:example.org",
        ),
        ("intitle:rust", "Did you mean “title:”?"),
        ("inurl:rust", "Did you mean “site:”?"),
        ("filetype:pdf", "I don't know “filetype:”. You can use title, tag, author, lang, site, after"),
        ("tga=x", "Did you mean “tag:”?"),
        ("colour=red", "I don't know “colour=”"),
        ("autho:x", "Did you mean “author:”?"),
        ("foo:bar", "To search for it as text, put it in quotation marks"),
        ("lang:en|de", "write OR instead of “|”, and repeat the field: lang:en OR lang:de"),
        ("OR rust", "“OR” needs a word on both sides"),
        ("rust OR", "“OR” needs a word on both sides"),
        ("rust OR OR go", "“OR” needs a word on both sides"),
        ("| rust", "“|” needs a word on both sides"),
        ("rust OR -go", "OR doesn't work with words you exclude"),
        ("-go OR rust", "OR doesn't work with words you exclude"),
        ("rust OR the", "“the” is in too many texts"),
        ("news -the", "“the” is in too many texts"),
        ("rust -rust", "You're asking for “rust” and excluding it at the same time"),
        ("after:3d OR rust", "“after:” doesn't work with a minus or with OR"),
        ("rust -type:entry", "“type:” doesn't work with a minus"),
        ("-rust", "That only says what to leave out"),
        ("", "What should I search for?"),
        ("- — &", "What should I search for?"),
        ("the", "are too common"),
        ('"of the"', "too common"),
        ('"" rust', "no words between the quotation marks"),
        ('"' + "word " * 17 + '"', "a phrase can have at most 16"),
        ("limit 5", "What should I search for?"),
        ('author="Jane', "quotation mark is missing"),
        ("tag:", "“tag:” needs a value right after it, without a space"),
        ("tag=", "“tag=” needs a value"),
        ("lang: en", "“lang:” needs a value right after it"),
        ("=x", "There has to be a field before “=”"),
        ('tag=""', "needs a value"),
        ('title:""', "needs a value"),
        ("region=gb", "only works together with “lang”"),
        ("lang=klingon", "something like en, de, pt"),
        ("updates=often", "not one of hourly, daily, weekly"),
        ("type:podcast", "not one of feed, page, entry"),
        ("lang=en lang=de", "You gave “lang” several values, but each result has only one. Pick one, or write OR"),
        ("site:a.org site:b.org", "You gave “site” several values"),
        ("after:3d after:2d x1", "You gave “after” several values"),
        ("type:entry updates=daily", "only works for channels"),
        ("type:channel rust after:3d", "only works for entries"),
        ("channel=https://example.org/", "only works for entries (add type:entry)"),
        ("title:the", "too many texts"),
        ("site:example", "not a host name"),
        ("site:example.org/blog", "“site:” takes a whole site, without a path: site:example.org"),
        ("after:monday x1", "isn't a day I understand"),
        ("after:3h x1", "isn't a day I understand. Use a date like 2026-11-01, or 3d, 2w, yesterday"),
        ("after:2026-02-30 x1", "isn't a day I understand"),
        ("after:01/11/2026 x1", "isn't a day I understand"),
        ("after:2027-01-01 x1", "is in the future"),
        ("tag=a limit 0", "from 1 to 50"),
        ("speed limit 100", "from 1 to 50, not “100”"),
        ("tag=a limit 5 limit=6", "more than one limit"),
        ("tag=a\x00b", "“tag=a?b” contains an invisible character"),
        ("tag=a\u202eb", "invisible character"),
        ("tag=" + "x" * 101, "101 characters; the maximum is 100"),
        ("tag=" + "x" * 2**20, "longer than 3,000 characters, the maximum"),
        (" ".join(f"tag={n}" for n in range(200)), f"200 conditions; the maximum is {MAX_CONDITIONS}"),
        (" ".join(f"t{n}" for n in range(500)), f"the maximum is {MAX_CONDITIONS}"),
        (" OR ".join(f"t{n}" for n in range(17)), "17 conditions"),
    ],
)
def test_unsupported_syntax_is_refused_with_advice(text: str, words: str) -> None:
    with pytest.raises(BadQuery) as refused:
        parse_query(text, TODAY)
    assert words in str(refused.value)
    assert len(str(refused.value)) < 300
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("rust tag:x -ads", QueryCondition(required(pair("tag=x"), word("rust")), (word("ads"),))),
        ("tag=x type:entry rust -ads", QueryCondition(required(pair("tag=x"), word("rust")), (word("ads"),))),
        ("go OR rust", QueryCondition(((word("go"), word("rust")),))),
        ("rust | go", QueryCondition(((word("go"), word("rust")),))),
        ('"The Quick  fox!"', QueryCondition(required(phrase("the quick fox")))),
        (r"/\bpy(thon)?\d\b/", PatternCondition(r"\bpy(thon)?\d\b")),
    ],
)
def test_a_saved_search_has_the_grammar_of_find(text: str, condition: QueryCondition | PatternCondition) -> None:
    assert parse_watch(text) == condition
    assert parse_watch(saved_search_text(text)) == condition


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "What should I search for?"),
        ("-rust", "That only says what to leave out"),
        ("/(/", "a closing parenthesis is missing"),
        (r"/(a)\1/", "invalid escape"),
        ("/(?=x)/", "invalid perl operator"),
        (r"/(\pL{1,40}){1,20}/", "too large"),
        ("/a{1,2000}/", "invalid repetition size"),
        ("/.*/", "matches any text"),
        ("/" + "x" * 201 + "/", "longer than 200"),
        ("/a\x00/", "invisible character"),
        ("tag=x limit=3", "with `find`"),
        ("tag=x limit 3", "with `find`"),
        ("tag=x after:3d", "sends new entries anyway"),
        ("type:channel tag=x", "finds entries, not channels"),
        ("type:feed tag=x", "only works for channels"),
        ("updates=daily tag=x", "only works for channels"),
        ("rust NOT go", "“NOT” isn't supported"),
    ],
)
def test_an_invalid_saved_search_is_refused_with_advice(text: str, words: str) -> None:
    with pytest.raises(BadQuery) as refused:
        parse_watch(text)
    assert words in str(refused.value)


def test_the_text_of_a_saved_search_omits_type_date_and_limit() -> None:
    assert saved_search_text('Rust | Go  -"foo bar" type:entry after:3d limit 5') == 'Rust | Go -"foo bar"'
