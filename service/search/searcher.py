"""Search for channels and entries.

A search has these steps:

1. Expand each word of the query to registered attribute-value pairs, if necessary including those of similar words.
2. Ask the search directory for the best candidates.
3. Read the candidates' documents, which are channels or entries.
4. Rank the documents that are public and still match.
5. Add a snippet (one line of text) to each of the best documents.

The directory describes a document at the time of its registration and may therefore be outdated. For this reason, each
result is checked before it is shown: its channel must still exist and be public, and the document must still match the
query. Candidates that fail this check are neither shown nor counted.

The steps without I/O are in :mod:`service.discovery.text_search`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from functools import partial
from itertools import islice

import msgspec

from service.discovery.av_pairs import ContentKind, Pair, attribute_of
from service.discovery.channel_description import ChannelDescription, describe_channel, text_of_named_channel
from service.discovery.channel_visibility import is_public, public_channels
from service.discovery.content_names import (
    DeclaredMetadata,
    channel_attributes,
    entry_attributes,
    entry_text,
)
from service.discovery.discover_listings import (
    MAX_CANDIDATES,
    NEW,
    WORKING,
    DiscoverAnswer,
    DiscoverCandidate,
    DiscoverOrder,
    arrange_listing,
    discover_pairs,
)
from service.discovery.matrix_search import MatrixReaders
from service.discovery.queries.query import DEFAULT_LIMIT, PairCondition, Query, SearchAnswer, SearchHit
from service.discovery.search_candidates import MAX_WEIGHT, CandidateName, Candidates, Clause, require_all
from service.discovery.text_search.query_expansion import ExpandedQuery, MatchKind, correctable_words, expand
from service.discovery.text_search.ranking import RankingSignals, ScoreParts, clause_importance, score
from service.discovery.text_search.searchable_text import SearchableText
from service.discovery.text_search.snippets import best_snippet
from service.discovery.text_search.vocabulary import Vocabulary
from service.discovery.word_analysis import fold
from service.feeds.canonical_urls import host_of, without_selector
from service.model import Channel, ChannelId, Entry
from service.net.sites_and_networks import site_of
from service.store import Store
from service.store.channels.channel_records import ChannelState
from service.store.channels.channels import NamedChannel
from service.store.directory.matrix_directory import Directory

OVERFETCH_FACTORS = (1.5, 40)
"""Numbers of candidates that are requested for each result to show.

More candidates are requested than are shown, because some candidates may not be public. A search begins with the first
number. If too few candidates can be shown, the search is repeated with the second number.
"""
MAX_NAMES = 1_000

_CONTENT_PREFIXES = ("tag=", "author=", "generator=", "version=", "age=")
"""Prefixes of AV-pairs that cannot be derived from a channel's record.

They depend on the channel's documents, or on the time at which it was added.
"""


def channel_id_of(name: str) -> ChannelId:
    """Return the id of the channel to which ``name`` belongs.

    ``name`` is the name under which a channel, or an entry of a channel, is registered in the search directory.
    """
    return name.partition("/")[0]


def channel_ids_of(names: Iterable[str]) -> list[ChannelId]:
    """Return the ids of the channels to which ``names`` belong, without duplicates.

    Each name is one under which a channel, or an entry of a channel, is registered in the search directory.
    """
    return list(dict.fromkeys(map(channel_id_of, names)))


def can_match(query: Query, channel: Channel, domain: str, interval_s: float) -> bool:
    """Return whether a channel may match the query, judged by the channel's record and URL only.

    If the result is False, the channel does not match. If it is True, the caller still has to examine the channel's
    content.

    - ``domain``: the registrable domain of the channel's URL.
    - ``interval_s``: the time between updates to the channel in seconds.
    """
    own = channel_attributes(channel, DeclaredMetadata(channel.language), domain, interval_s)
    required = (group[0] for group in query.all_of if len(group) == 1)
    pairs = (condition.pair for condition in required if isinstance(condition, PairCondition))
    return all(pair in own for pair in pairs if not pair.startswith(_CONTENT_PREFIXES))


_OWN_BATCH = 50
"""Number of subscriptions that are read at a time when a user's private channels are searched."""
_LATEST = 20
"""Number of latest entries from which a channel's name (its attribute-value pairs) is built."""


class SearchExplanation(msgspec.Struct, frozen=True):
    """The answer to a query, with the data from which it was computed.

    - ``expanded``: the query and its clauses, which are conditions on the attribute-value pairs of results.
    - ``importances``: for each clause, its importance for the scores.
    - ``scores``: the score of each hit.
    - ``pairs``: for each hit and each clause, the attribute-value pair that counts for the score of the hit.
    """

    answer: SearchAnswer
    expanded: ExpandedQuery
    candidates: Candidates
    importances: tuple[float, ...]
    scores: tuple[ScoreParts, ...]
    pairs: tuple[tuple[Pair, ...], ...]


class _Document(msgspec.Struct, frozen=True):
    """A candidate of a search, with the current content of its channel or entry.

    - ``named``: the channel with its attribute-value pairs in the search directory; None for entries.
    - ``time_s``: the Unix time at which the entry was published or detected, whichever is earlier; 0 for channels.
    """

    candidate: CandidateName
    score: ScoreParts
    channel: Channel
    subscribers: int
    text: SearchableText
    named: NamedChannel | None = None
    entry: Entry | None = None
    time_s: float = 0.0


class _Match(msgspec.Struct, frozen=True, eq=False):
    """A document (channel or entry) that satisfies the query.

    - ``pairs``: the attribute-value pairs of the channel or entry. Empty for an entry if the query has no attributes,
      because the pairs are then not needed.
    - ``has_all_words``: whether the document contains all words of the query, including the optional ones.
    """

    document: _Document
    pairs: AbstractSet[Pair]
    has_all_words: bool


class _PublicChannel(msgspec.Struct, frozen=True):
    channel: Channel
    subscribers: int


_OwnChannel = tuple[Channel, ChannelDescription]
"""A private channel to which the user is subscribed, and its description."""


class Searcher:
    """Searches for channels and entries.

    Every method raises :class:`service.errors.StoreUnavailable` if Redis does not respond.
    """

    def __init__(self, store: Store, min_subscribers: int) -> None:
        """Create a searcher for ``store``. Channels with at least ``min_subscribers`` subscribers are public."""
        self._store = store
        self._min_subscribers = min_subscribers

    async def find(self, query: Query, language: str = "") -> SearchAnswer:
        """Return up to ``query.limit`` public channels or entries that match, best first.

        ``language`` is the user's language (ISO 639-1), or "" if it is unknown. Documents in this language are
        preferred.

        Raises :class:`CellsUnavailable` if parts of the search directory keep changing while they are read.
        """
        return (await self.explain(query, language)).answer

    async def explain(self, query: Query, language: str = "") -> SearchExplanation:
        """Return the answer that :meth:`find` gives, with the candidates, importances and scores it is based on."""
        vocabulary = await directory_of(self._store, query.about).vocabulary.read()
        expanded, cached = expand(query, vocabulary, language), MatrixReaders()
        if words := correctable_words(query):
            pairs = [each.pair for clause in expanded.clauses for each in clause.alternatives]
            frequencies = await directory_of(self._store, query.about).frequencies(pairs, cached)
            if missing := expanded.words_without_documents(frequencies):
                expanded = expand(query, vocabulary, language, missing)
        tolerant = partial(expand, query, vocabulary, language, words) if words else None
        return await self._find_expanded(expanded, language, cached, tolerant)

    async def discover(
        self, order: DiscoverOrder = "popular", language: str = "", topic: str = "", limit: int = DEFAULT_LIMIT
    ) -> DiscoverAnswer:
        """Return up to ``limit`` public channels that can be fetched without errors, sorted by ``order``.

        If ``language`` or ``topic`` is not empty, only channels in this language or on this topic are returned. The
        result shows how many subscribers each channel has, but not who they are.

        Raises :class:`service.errors.BadQuery` if the language or the topic is invalid. Raises
        :class:`CellsUnavailable` if parts of the search directory keep changing while they are read.
        """
        pairs = discover_pairs(order, language, topic)
        # All new channels but a few work, so that the directory of new ones has enough that do.
        sought = tuple(pair for pair in pairs if pair != WORKING or NEW not in pairs)
        found = await self._store.directory_lookups.lookup(sought, MAX_CANDIDATES)
        cids = list(
            found.names
            if found
            else (
                await self._find_in_matrices("channel", require_all(pairs), (), MAX_CANDIDATES, MatrixReaders())
            ).names
        )
        public = await self._read_public_named(cids, with_latest=False)
        listed = [
            DiscoverCandidate(named.channel, subscribers, named.pairs)
            for named, subscribers in (public[cid] for cid in cids if cid in public)
        ]
        return arrange_listing(order, pairs, listed, limit)

    async def find_own(self, jid: str, query: Query, *, corrects: bool = False) -> SearchAnswer:
        """Return up to ``query.limit`` matching private channels to which the user ``jid`` is subscribed.

        Private channels are visible only to their subscribers. If ``corrects`` is true, channels also match if they
        have words similar to those of the query. The result is empty if the query is for entries.
        """
        if query.about != "channel":
            return SearchAnswer(())
        expanded = expand(query, Vocabulary())
        cids = [subscription.channel for subscription in await self._store.subscriptions.of_user(jid)]
        described, matching, words = list[_OwnChannel](), list[_OwnChannel](), set[tuple[str, str]]()
        for first in range(0, len(cids), _OWN_BATCH):
            batch = cids[first : first + _OWN_BATCH]
            public, states = await asyncio.gather(self.filter_public(batch), self._store.channels.states(batch))
            now_s = time.time()
            private = [
                state
                for state in states
                if state is not None
                and not state.channel.moved_to
                and state.channel.id not in public
                and can_match(query, state.channel, _domain(state.channel), state.updates.interval_s(now_s))
            ]
            names = await asyncio.gather(*(read_channel_name(self._store, state, now_s) for state in private))
            batch_described = list(zip((state.channel for state in private), names, strict=True))
            if corrects:
                described += batch_described
                words.update(word for name in names for word in name.text.registered_words().items())
                continue
            matching += _with_all_words(expanded, batch_described)
            if len(matching) >= query.limit:
                break
        if corrects:
            expanded = expand(query, Vocabulary(words), misspelt=correctable_words(query))
            matching = _with_all_words(expanded, described)
        matching = matching[: query.limit]
        corrections = expanded.corrections([(name.text, name.pairs.keys()) for _, name in matching])
        return SearchAnswer(tuple(SearchHit(channel, own=True) for channel, _ in matching), tuple(corrections))

    async def filter_public(self, cids: Sequence[ChannelId]) -> dict[ChannelId, Channel]:
        """Map the id of each public channel in ``cids`` to the channel. Other channels are left out."""
        return {cid: public.channel for cid, public in (await self._read_public(cids)).items()}

    async def _read_public(self, cids: Sequence[ChannelId]) -> dict[ChannelId, _PublicChannel]:
        """Map the id of each public channel in ``cids`` to the channel and its subscriber count."""
        channels, counts = await asyncio.gather(
            self._store.channels.get_many(cids), self._store.channel_index.count(list(cids))
        )
        return self._select_public(channels, dict(zip(cids, counts, strict=True)))

    async def _read_public_named(
        self, cids: Sequence[ChannelId], *, with_latest: bool
    ) -> dict[ChannelId, tuple[NamedChannel, int]]:
        """Map the id of each public channel in ``cids`` to the channel and its subscriber count.

        The channels have their attribute-value pairs, and also their latest entries if ``with_latest`` is true.
        """
        # Channels are counted afterwards, because the counts need the sites that have been read with the channels.
        read = await self._store.channels.get_named(cids, with_latest=with_latest)
        named = {each.channel.id: each for each in read if each and not each.channel.moved_to}
        counts = await self._store.channel_index.count_at_sites({cid: each.site for cid, each in named.items()})
        return {
            cid: (each, counts[cid])
            for cid, each in named.items()
            if cid in counts and is_public(each.channel, counts[cid], self._min_subscribers)
        }

    def _select_public(
        self, channels: Iterable[Channel | None], counts: Mapping[ChannelId, int]
    ) -> dict[ChannelId, _PublicChannel]:
        """Map the id of each public channel in ``channels`` to the channel and its subscriber count.

        Elements that are None are ignored. ``counts`` maps the id of each channel to its subscriber count.
        """
        existing = [channel for channel in channels if channel is not None]
        public = public_channels(existing, [counts.get(channel.id, 0) for channel in existing], self._min_subscribers)
        return {cid: _PublicChannel(channel, counts.get(cid, 0)) for cid, channel in public.items()}

    async def _find_expanded(
        self,
        expanded: ExpandedQuery,
        language: str,
        cached: MatrixReaders,
        tolerant: Callable[[], ExpandedQuery] | None = None,
    ) -> SearchExplanation:
        """Return the best results of a query whose words have been expanded to attribute-value pairs.

        - ``language``: the user's language (ISO 639-1), or "" if it is unknown.
        - ``cached``: holds what has been read for this query, so that nothing is read twice.
        - ``tolerant``: function that returns the query with similar words added; None if there is no such query. The
          results are those of this query if no document contains all words of ``expanded``.
        """
        limit = expanded.query.limit
        candidates, matching, whole = Candidates((), 0, True, {}, (), 0.0), list[_Match](), True
        importances: tuple[float, ...] = ()
        async for candidates, enough in self._candidates(expanded, cached, limit):
            if tolerant is not None and not any(all(each.weights) for each in candidates.found):
                break
            importances = tuple(clause_importance(clause, candidates.frequencies) for clause in expanded.clauses)
            documents = await self._documents(expanded, candidates.found, importances, language)
            whole = candidates.complete and len(candidates.found) == candidates.total
            # Candidates that are not public do not count: one match above the limit shows that there are more results.
            matching = list(islice(_matches(expanded, documents), None if whole else limit + 1))
            if len(matching) >= enough or whole:
                break
        complete = [match for match in matching if match.has_all_words]
        if tolerant is not None and not complete:
            return await self._find_expanded(tolerant(), language, cached)
        if len(complete) < limit:
            matching = [*complete, *(match for match in matching if not match.has_all_words)]
        else:
            matching = complete
        shown = matching[:limit]
        answer = SearchAnswer(
            tuple(_hits(expanded, shown)),
            tuple(expanded.corrections([(match.document.text, match.pairs) for match in complete[:limit] or shown])),
            has_more=len(matching) > limit,
            total=len(matching) if whole else None,
        )
        return SearchExplanation(
            answer,
            expanded,
            candidates,
            importances,
            tuple(match.document.score for match in shown),
            tuple(match.document.candidate.pairs for match in shown),
        )

    async def _candidates(
        self, expanded: ExpandedQuery, cached: MatrixReaders, limit: int
    ) -> AsyncIterator[tuple[Candidates, int]]:
        """Yield (candidates, enough) repeatedly, with more candidates each time.

        The caller can stop when at least ``enough`` of the candidates match.

        - ``cached``: holds what has been read for this query, so that nothing is read twice.
        - ``limit``: the number of results to show.
        """
        # The first candidates are from a lookup directory in workers' memory, if the query has only attributes and they
        # have such a directory. All others are from the matrices.
        query, pairs = expanded.query, expanded.query.attributes
        first, *others = (min(int(factor * limit) + 1, MAX_NAMES) for factor in OVERFETCH_FACTORS)
        if pairs and query.about == "channel":
            listed = await self._store.directory_lookups.lookup(pairs, first)
            if listed is not None:
                weights = (float(MAX_WEIGHT),) * len(pairs)
                equal = [CandidateName(name, 0.0, 0.0, weights, pairs) for name in listed.names]
                yield Candidates(tuple(equal), len(equal), False, dict.fromkeys(pairs, 0), (), 0.0), limit
        for max_count in (first, *others) if expanded.clauses else ():
            found = await self._find_in_matrices(query.about, expanded.clauses, expanded.excluded, max_count, cached)
            yield found, limit + 1

    async def _find_in_matrices(
        self,
        about: ContentKind,
        clauses: Sequence[Clause],
        excluded: Collection[Pair],
        max_count: int,
        cached: MatrixReaders,
    ) -> Candidates:
        """Return the best ``max_count`` channels or entries that satisfy ``clauses`` and have no pair in ``excluded``.

        The matrices are the search directory's tables in Redis. ``cached`` holds what has been read for this query, so
        that nothing is read twice.
        """
        # A search for attributes of channels is counted, so that popular attributes get a lookup directory.
        candidates = await directory_of(self._store, about).find(clauses, excluded, max_count, cached)
        if about == "channel" and not any(attribute_of(pair) == "word" for pair in candidates.frequencies):
            self._store.directory_lookups.count_search(candidates.frequencies, max_count)
        return candidates

    async def _documents(
        self, expanded: ExpandedQuery, candidates: Sequence[CandidateName], importances: Sequence[float], language: str
    ) -> list[_Document]:
        """Read the documents (channels or entries) of the ``candidates``; return the public ones, best first.

        Entries that were published before ``query.after`` are left out.

        - ``importances``: the importance of each clause of the query.
        - ``language``: the user's language (ISO 639-1), or "" if it is unknown.
        """
        query = expanded.query
        if query.about == "entry":
            documents = await self._entry_documents(expanded, candidates, importances, language)
            if query.after is not None:
                after_s = datetime.combine(query.after, datetime.min.time(), UTC).timestamp()
                documents = [one for one in documents if one.time_s >= after_s]
        else:
            documents = await self._channel_documents(expanded, candidates, importances, language)
        # Stable: the candidates are in the order of their relevance and then of their names.
        documents.sort(key=lambda one: (-one.candidate.coverage, -one.score.total, -one.time_s))
        return documents

    async def _entry_documents(
        self,
        expanded: ExpandedQuery,
        candidates: Sequence[CandidateName],
        importances: Sequence[float],
        language: str,
    ) -> list[_Document]:
        now_s, documents = time.time(), list[_Document]()
        public = await self._read_public(channel_ids_of(candidate.name for candidate in candidates))
        candidates = [candidate for candidate in candidates if channel_id_of(candidate.name) in public]
        entries = await self._store.public_entries.read([candidate.name for candidate in candidates], now_s)
        for candidate in candidates:
            if candidate.name not in entries:
                continue
            entry, detected_s = msgspec.structs.astuple(entries[candidate.name])
            found = public[channel_id_of(candidate.name)]
            channel, subscribers = found.channel, found.subscribers
            time_s = detected_s if entry.published is None else min(entry.published, detected_s)
            as_written = expanded.share_as_written(fold(f"{entry.title}\n{entry.summary}"))
            known = RankingSignals(as_written, _is_in_language(channel, language), subscribers, now_s - time_s)
            total = score(candidate, importances, known)
            text = entry_text(entry, channel.language)
            documents.append(_Document(candidate, total, channel, subscribers, text, entry=entry, time_s=time_s))
        return documents

    async def _channel_documents(
        self,
        expanded: ExpandedQuery,
        candidates: Sequence[CandidateName],
        importances: Sequence[float],
        language: str,
    ) -> list[_Document]:
        documents = list[_Document]()
        public = await self._read_public_named([candidate.name for candidate in candidates], with_latest=True)
        for candidate in candidates:
            if candidate.name not in public:
                continue
            named, subscribers = public[candidate.name]
            channel = named.channel
            text = text_of_named_channel(channel, named.pairs, _domain)
            as_written = expanded.share_as_written(text.folded_title)
            known = RankingSignals(as_written, _is_in_language(channel, language), subscribers, None)
            total = score(candidate, importances, known)
            documents.append(_Document(candidate, total, channel, subscribers, text, named))
        return documents


def _with_all_words(expanded: ExpandedQuery, channels: Iterable[_OwnChannel]) -> list[_OwnChannel]:
    """Return the channels that have all words of the query."""
    return [
        (channel, name)
        for channel, name in channels
        if expanded.match(name.text, name.pairs.keys()) is MatchKind.ALL_WORDS
    ]


def _matches(expanded: ExpandedQuery, documents: Iterable[_Document]) -> Iterator[_Match]:
    """Yield the documents that satisfy the query."""
    # Attributes of entries are computed only if the query needs them.
    query = expanded.query
    conditions = (condition for group in (*query.all_of, query.none_of) for condition in group)
    has_attributes = any(isinstance(condition, PairCondition) for condition in conditions)
    for one in documents:
        channel = one.channel
        pairs: AbstractSet[Pair] = frozenset()
        if one.named is not None:
            pairs = one.named.pairs
        elif one.entry is not None and has_attributes:
            traits = DeclaredMetadata(channel.language)
            pairs = frozenset(entry_attributes(one.entry, channel, traits, _domain(channel)))
        found = expanded.match(one.text, pairs)
        if found is not MatchKind.NONE:
            yield _Match(one, pairs, found is MatchKind.ALL_WORDS)


def _hits(expanded: ExpandedQuery, matches: Iterable[_Match]) -> Iterator[SearchHit]:
    """Convert matches to search hits with snippets."""
    asked = expanded.query_words()
    for match in matches:
        found = match.document
        texts = [found.entry.summary] if found.entry else found.named.latest_titles if found.named else []
        snippet = best_snippet(texts, asked)
        yield SearchHit(
            found.channel, found.entry, False, found.subscribers, snippet.text, snippet.hits,
            lacks_words=not match.has_all_words,
        )  # fmt: skip


def _is_in_language(channel: Channel, language: str) -> bool:
    return bool(language) and channel.language[:2].lower() == language


def directory_of(store: Store, about: ContentKind) -> Directory:
    """Return the search directory for entries if ``about`` is "entry", otherwise the one for channels."""
    return store.entry_directory if about == "entry" else store.channel_directory


async def read_channel_name(store: Store, state: ChannelState, now_s: float) -> ChannelDescription:
    """Return the description by which searches find a channel: its attribute-value pairs and its searchable text.

    The channel need not be public. ``now_s`` is the current Unix time. Raises
    :class:`service.errors.StoreUnavailable` if Redis does not respond.
    """
    channel = state.channel
    latest, metadata = await asyncio.gather(
        store.channels.latest(channel.id, _LATEST), store.channels.feed_metadata(channel.id)
    )
    return describe_channel(channel, latest, metadata, _domain(channel), state.updates.interval_s(now_s), now_s=now_s)


def _domain(channel: Channel) -> str:
    return site_of(host_of(without_selector(channel.url)))
