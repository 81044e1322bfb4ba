"""Texts for search results, listings of channels, and saved searches."""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from bots.i18n.translator import Translator, gettext_noop
from bots.replies.formatting import fit_rows, more_line, title
from service.discovery.discover_listings import DiscoverOrder
from service.discovery.queries.query import Correction, Query, SearchHit
from service.discovery.queries.query_parser import saved_search_text
from service.discovery.queries.saved_searches import SavedSearch
from service.feeds.canonical_urls import without_selector
from service.feeds.parsing.html_text import one_line

NO_MORE_RESULTS: Final = gettext_noop(
    "There are no more results. `find` starts a new search, `discover` shows what's popular."
)
NO_LIST: Final = gettext_noop(
    "There's no list to continue. `find` starts a new search, `discover` shows what's popular."
)
_MAX_TOPICS: Final = 8
_MAX_ADDRESS_CHARS: Final = 60
_INDENT: Final = "\n    "
_LOWERCASE_OR = re.compile(r"\s(or|oder|ou|o|oppure|lub)\s", re.IGNORECASE)


def search_results(
    query_text: str,
    query: Query,
    corrections: tuple[Correction, ...],
    translator: Translator,
    *,
    are_instead_of_channels: bool,
    hits: Sequence[SearchHit],
    shown_before: int,
    has_more: bool,
) -> str:
    """Return a text that shows the hits of a search; if there are no hits, it suggests other searches.

    Args:
        query_text: The query as the user wrote it.
        query: The parsed query.
        corrections: The words in the query that were replaced with others before searching.
        translator: The translator into the user's language.
        are_instead_of_channels: Whether the hits are entries because no suitable channel was found.
        hits: All hits so far, including those that earlier replies have shown.
        shown_before: How many of the hits earlier replies have shown.
        has_more: Whether the search has further hits.
    """
    text = one_line(query_text, 200)
    if not hits:
        return " ".join([_no_hits(query, text, translator), *_alternatives(query, text, translator)])
    count = sum(not hit.lacks_words for hit in hits)
    corrected = _corrected(text, corrections)
    if shown_before:
        head = translator.gettext("More results for “{query}”:", query=text)
    elif corrections and count:
        head = translator.gettext(
            "Nothing matches “{query}”. Results for “{corrected}”:", query=text, corrected=corrected
        )
    elif corrections:
        head = translator.gettext(
            "Nothing contains all the words in “{query}”. Here are the best results for “{corrected}”:",
            query=text,
            corrected=corrected,
        )
    elif not count:
        head = translator.gettext("Nothing contains all the words in “{query}”. These come closest:", query=text)
    elif are_instead_of_channels:
        head = translator.gettext("No channel matches “{query}”, but these entries do:", query=text)
    elif has_more and count == len(hits):
        head = translator.gettext("The best matches for “{query}”:", query=text)
    elif query.about == "entry":
        head = translator.ngettext(
            "{count} entry matches “{query}”:", "{count} entries match “{query}”:", count, query=text
        )
    else:
        head = translator.ngettext(
            "{count} channel matches “{query}”:", "{count} channels match “{query}”:", count, query=text
        )
    part = (count, translator.gettext("With only some of the words:")) if count else None
    hints = [] if count else _or_hints(query, text, translator)
    return _numbered(head, hits, translator, shown_before=shown_before, has_more=has_more, part=part, hints=hints)


class Listing(msgspec.Struct, frozen=True):
    """Describes a listing of public channels: the filters that are applied, and those that the user can add.

    - ``order``: whether popular or new channels are listed.
    - ``language``: the language to which the listing is limited, or "".
    - ``topic``: the topic to which the listing is limited, or "".
    - ``is_own_language``: whether ``language`` is the user's own language, chosen because the command names none.
    - ``languages``, ``topics``: the languages and topics to which the user can narrow the listing.
    - ``new_count``: how many new channels follow the popular channels at the end of the first page.
    """

    order: DiscoverOrder
    language: str
    topic: str
    is_own_language: bool
    languages: tuple[str, ...]
    topics: tuple[str, ...]
    new_count: int


def listing_text(
    listing: Listing, translator: Translator, *, hits: Sequence[SearchHit], shown_before: int, has_more: bool
) -> str:
    """Return a text that lists public channels to browse.

    ``hits`` are all channels so far; earlier replies have shown the first ``shown_before`` of them. ``has_more``
    states whether there are further channels.
    """
    ways = [] if shown_before else _narrowing_hints(listing, translator)
    if not hits:
        return " ".join([_empty(listing, translator), *ways])
    names = [translator.language_name(listing.language)] if listing.language else []
    what = ", ".join([*names, *([one_line(listing.topic, 60)] if listing.topic else [])])
    match listing.order, bool(what):
        case "new", True:
            head = translator.gettext("New channels ({what}):", what=what)
        case "new", _:
            head = translator.gettext("New channels:")
        case _, True:
            head = translator.gettext("Popular channels ({what}):", what=what)
        case _:
            head = translator.gettext("Popular channels:")
    part = (len(hits) - listing.new_count, translator.gettext("New:")) if not shown_before else None
    return _numbered(head, hits, translator, shown_before=shown_before, has_more=has_more, part=part, hints=ways)


def _numbered(
    head: str,
    hits: Sequence[SearchHit],
    translator: Translator,
    *,
    shown_before: int,
    has_more: bool,
    part: tuple[int, str] | None,
    hints: Sequence[str],
) -> str:
    """Return the text of one page of hits: ``head``, the numbered hits, ``hints``, and the offer to subscribe.

    The offer to subscribe is left out if the user is already subscribed to all of the channels.

    - ``head``: the first line.
    - ``hits``: all hits so far, including those on this page. Numbering begins with 1 at the first of them.
    - ``translator``: the translator into the user's language.
    - ``shown_before``: how many hits earlier replies have shown; these are left out.
    - ``has_more``: whether the search has further hits.
    - ``part``: a pair (n, heading), which puts a heading after the first n hits; None for no heading.
    - ``hints``: lines below the hits.
    """
    if shown_before == len(hits):
        return translator.gettext(NO_MORE_RESULTS)
    rows = [f"{number}. {_hit(hit, translator)}" for number, hit in enumerate(hits, 1)]
    if part is not None and 0 < part[0] < len(rows):
        rows[part[0]] = f"{part[1]}\n{rows[part[0]]}"
    offers = [] if all(hit.own for hit in hits) else [_subscribe_offer(hits, translator)]
    if has_more:
        offers.append(translator.gettext("`more` shows the next ones."))
    tail = "\n".join(filter(None, [*hints, " ".join(offers)]))
    return fit_rows(head, rows[shown_before:], translator, tail)


def _empty(listing: Listing, translator: Translator) -> str:
    if listing.topic:
        topic = one_line(listing.topic, 60)
        return translator.gettext(
            "No public channel has the topic “{topic}”. To search texts as well, send `find {topic}`.", topic=topic
        )
    if listing.language:
        return translator.gettext(
            "There are no public channels in {language} yet.",
            language=translator.language_name(listing.language),
        )
    return translator.gettext("There's nothing to discover yet. Send me the address of a site you like.")


def _narrowing_hints(listing: Listing, translator: Translator) -> list[str]:
    """Return sentences that name topics and languages to which the user can narrow the listing."""
    topics = [topic for topic in listing.topics if topic != listing.topic][:_MAX_TOPICS]
    languages = [language for language in listing.languages if language != listing.language]
    ways = []
    if topics:
        ways.append(
            translator.gettext("Topics: {topics} (e.g. `discover {topic}`).", topics=", ".join(topics), topic=topics[0])
        )
    if languages and len(listing.languages) > 1:
        ways.append(
            translator.gettext(
                "Languages: {languages} (e.g. `discover lang:{language}`).",
                languages=", ".join(map(translator.language_name, languages)),
                language=next((each for each in languages if each != translator.language), languages[0]),
            )
        )
    if listing.is_own_language:
        ways.append(translator.gettext("For all languages, send `discover all`."))
    return ways


class SearchPreview(msgspec.Struct, frozen=True):
    """A preview of a saved search: ``count`` is how many entries of the last ``days`` days match it.

    ``examples`` are some of these entries.
    """

    count: int
    days: int
    examples: tuple[SearchHit, ...]

    def example_rows(self) -> list[str]:
        """Return one line per example, with the titles of the entry and of its channel."""
        return [
            f"• {_bold(one_line(hit.entry.title or hit.entry.link, 200))} · {title(hit.channel)}"
            for hit in self.examples
            if hit.entry is not None
        ]


def search_saved_text(saved: SavedSearch, preview: SearchPreview | None, translator: Translator) -> str:
    """Return the text that tells the user that a search was saved, and shows recent entries that match it.

    ``preview`` contains the entries of the last few days that match the search; it is None if they are unknown.
    """
    number = str(saved.number)
    head = translator.gettext("Saved as search #{number}: {query}", query=one_line(saved.text, 300), number=number)
    last = translator.gettext(
        "I'll send you every new match from public channels. `unwatch #{number}` stops this.", number=number
    )
    if preview is None:
        return f"{head}\n{last}"
    rows = preview.example_rows()
    if not rows:
        found = translator.gettext("In the last {days} days it would have found nothing.", days=preview.days)
        return f"{head}\n{found}\n{last}"
    found = translator.ngettext(
        "In the last {days} days it would have found {count} entry:",
        "In the last {days} days it would have found {count} entries:",
        preview.count,
        days=preview.days,
    )
    others = [more_line(preview.count - len(rows), translator)] if preview.count > len(rows) else []
    return "\n".join([head, found, *rows, *others, last])


def confirm_search_text(query_text: str, preview: SearchPreview, translator: Translator) -> str:
    """Return the text that asks whether to save the search ``query_text`` although it has many matches."""
    head = translator.gettext(
        "That's a lot: in the last {days} days, “{query}” matched more than {count} entries, such as:",
        query=one_line(query_text, 200),
        days=preview.days,
        count=preview.count - 1,
    )
    last = translator.gettext(
        "To get fewer, add a word, a phrase in quotation marks, `lang:en` or `-word`. Or reply `yes` to save it as "
        "it is."
    )
    return "\n".join([head, *preview.example_rows(), last])


def saved_search_list(saved: Sequence[SavedSearch], translator: Translator) -> str:
    """Return a text that lists a user's saved searches."""
    if not saved:
        return translator.gettext(
            "You have no saved searches. To save one, send e.g. `watch rust -game`; `help watch` tells you more."
        )
    rows = [f"#{each.number} {one_line(each.text, 300)}" for each in saved]
    last = translator.gettext("To delete one, send e.g. `unwatch #{number}`.", number=str(saved[-1].number))
    return fit_rows(translator.gettext("Your saved searches:"), rows, translator, last)


def _no_hits(query: Query, text: str, translator: Translator) -> str:
    if query.about == "entry":
        return translator.gettext("Nothing matches “{query}”.", query=text)
    return translator.gettext("No channel matches “{query}”.", query=text)


def _alternatives(query: Query, text: str, translator: Translator) -> list[str]:
    """Return sentences that suggest what else to try after a search without hits."""
    tries = _or_hints(query, text, translator)
    if tries:
        return tries
    if len(query.all_of) + len(query.none_of) > 1 or query.after is not None:
        tries.append(translator.gettext("Try fewer words or conditions."))
    if query.about == "entry":
        watch = f"watch {one_line(saved_search_text(text), 200)}"
        tries.append(translator.gettext("`{command}` saves this search and sends you new matches.", command=watch))
    elif not tries:
        tries.append(
            translator.gettext(
                "Try another word or `discover`, or send me the address of a site and I'll look for its feed."
            )
        )
    return tries


def _or_hints(query: Query, text: str, translator: Translator) -> list[str]:
    """Return a list with a hint to write OR in capitals if ``text`` contains "or" in lower case, otherwise []."""
    if not _LOWERCASE_OR.search(text) or any(len(group) > 1 for group in query.all_of):
        return []
    command = f"find {_LOWERCASE_OR.sub(' OR ', text)}"
    return [translator.gettext("To find either word, write OR in capital letters: `{command}`.", command=command)]


def _corrected(text: str, corrections: tuple[Correction, ...]) -> str:
    """Return the query that was searched for: ``text`` with the words in ``corrections`` replaced."""
    for correction in corrections:
        parts = re.split(rf"(?<!\w){re.escape(correction.word)}(?!\w)", text, flags=re.IGNORECASE)
        text = correction.replacement.join(parts)
    return text


def _subscribe_offer(hits: Sequence[SearchHit], translator: Translator) -> str:
    if len(hits) == 1:
        return translator.gettext("Reply `1` to subscribe.")
    if hits[0].entry is not None:
        return translator.gettext("Reply with a number to subscribe to the channel.")
    return translator.gettext("Reply with a number to subscribe.")


def _hit(hit: SearchHit, translator: Translator) -> str:
    """Return a few lines about a hit: its title and channel, its snippet, and, for an entry, its link."""
    if hit.entry is None:
        facts = [_bold(title(hit.channel)), _short_address(hit.channel.url)]
        if hit.own:
            facts.append(translator.gettext("private: only you see it here"))
        elif hit.subscribers:
            facts.append(translator.ngettext("{count} subscriber", "{count} subscribers", hit.subscribers))
        lines = [_snippet(hit)]
    else:
        facts = [_bold(one_line(hit.entry.title, 200) or translator.gettext("(untitled)")), title(hit.channel)]
        lines = [_snippet(hit), one_line(hit.entry.link, 2000)]
    return _INDENT.join([" · ".join(facts), *filter(None, lines)])


def _short_address(url: str) -> str:
    """Return a channel's URL without scheme and selector, cut to a readable length."""
    address = without_selector(url).partition("://")[2].removeprefix("www.")
    return one_line(address.removesuffix("/"), _MAX_ADDRESS_CHARS)


def _bold(text: str) -> str:
    """Return the text in bold (XEP-0393), or unchanged if it contains asterisks that would prevent that."""
    return text if "*" in text else f"*{text}*"


def _snippet(hit: SearchHit) -> str:
    """Return the hit's snippet with the query words in bold (XEP-0393)."""
    text = hit.snippet
    if "*" in text:
        return one_line(text, 300)
    parts, place = [], 0
    for start, end in hit.hits:
        if start == 0 or text[start - 1].isspace():
            parts += [text[place:start], f"*{text[start:end]}*"]
            place = end
    return one_line("".join([*parts, text[place:]]), 300)
