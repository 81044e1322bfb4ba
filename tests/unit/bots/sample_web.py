"""A new user, and a small web with many kinds of errors, for tests of dialogues."""

from msgspec import structs

from bots.pubsub.atom_items import node_uri
from service import errors
from service.corona.optimizer.poll_explanation import BindingConstraint, PollExplanation
from service.corona.polling_limits import NO_LIMITS, PollingLimits
from service.discovery.queries.query import Correction, SearchHit
from service.feeds.canonical_urls import SHARED, channel_id, page_url, protected_url
from service.feeds.credentials import Credential
from service.model import Entry, FeedLink
from service.store.coordination.worker_requests import ProbeReply
from tests.support.poll_explanations import explanation
from tests.unit.bots.fake_requests import NOW_S, TOPICS, Person, feed, page

NEWS, BLOG = "https://news.example/feed", "https://blog.example/atom"
HOURLY, POPULAR = "https://hourly.example/feed", "https://popular.example/feed"
GUARDED, COMMON = "https://guarded.example/feed", "https://common.example/feed"
DOWN, PAUSED = "https://down.example/feed", "https://paused.example/feed"
LIST = page_url("https://shop.example/prices", "#list")
PRICE = page_url("https://shop.example/prices", "css=.price")
TABLE = page_url("https://shop.example/prices", "xpath=//table[2]")
API = page_url("https://shop.example/api", "json=$.items[*].price")
FILTERED = page_url("https://shop.example/api", "json=$.items[?@.price<5]")

TROUBLES: dict[str, ProbeReply | errors.CoronetError] = {
    "https://gone.example/": errors.BadStatus("gone.example answered 410 (Gone).", status=410),
    "https://typo.example/": errors.HostNotFound(
        "There's no site named {host}, or its name server isn't responding.", host="typo.example"
    ),
    **{
        f"https://answers-{status}.example/": errors.BadStatus("", status=status)
        for status in (401, 403, 404, 429, 503)
    },
    "https://private.example/": errors.AddressRefused("10.0.0.1 is private."),
    "http://port.example:9000/": errors.PortRefused(
        "Port {port} is not one that feeds are fetched from ({ports}). Whoever runs this bot can allow it.",
        port="9000",
        ports="80, 443, 8080, 8443",
    ),
    "https://away.example/": errors.Unreachable("{host} took too long to respond.", host="away.example"),
    "https://expired.example/": errors.TlsFailed("The certificate of {host} has expired.", host="expired.example"),
    "https://round.example/": errors.BadRedirect(""),
    "https://garbled.example/": errors.BadHttp("The response from {host} isn't valid HTTP.", host="garbled.example"),
    "https://huge.example/": errors.TooLarge(""),
    "https://empty.example/": errors.EmptyBody("The document is empty. Please check the address, or try again later."),
    "https://broken.example/": errors.BrokenFeed(""),
    "https://slow.example/": errors.ParseKilled(""),
    "https://busy.example/": errors.NoWorker(""),
    "https://forgetful.example/": errors.StoreUnavailable(""),
    "https://unlucky.example/": errors.OperationalError(""),
}


def listed(url: str, title: str, about: str, snippet: str, *, subscribers: int = 0, is_new: bool = False) -> SearchHit:
    """A public channel; ``about`` is its language and its tags, stars are around the hits in the snippet."""
    language, *topics = about.split()
    channel = structs.replace(feed(url, title), language=language, created_s=NOW_S if is_new else 0.0)
    TOPICS[channel.id] = tuple(topics)
    return marked(SearchHit(channel, subscribers=subscribers), snippet)


def marked(hit: SearchHit, snippet: str) -> SearchHit:
    """A result with a snippet that has stars around its hits."""
    parts = snippet.split("*")
    ends = [sum(map(len, parts[: number + 1])) for number in range(len(parts))]
    return structs.replace(hit, snippet="".join(parts), hits=tuple(zip(ends[::2], ends[1::2], strict=False)))


_CHANNELS = (
    listed("https://planet.example/rss", "Planet Python", "en python", "What is new in *Python*", subscribers=1_240),
    listed("https://tutor.example/feed", "Python Tutor", "en python tutorials", "*Python* in a day", subscribers=86),
    listed("https://snakes.example/feed", "Snakes", "en python games", "A board game in *Python*", subscribers=9),
    listed(BLOG, "A Blog", "en python travel", "Why I left *Python* for a week", subscribers=3, is_new=True),
    listed("https://kernel.example/atom", "Kernel Weekly", "en linux", "*Linux* 7.0 is out", subscribers=410),
    listed("https://pinguin.example/feed", "Pinguin", "de linux", "*Linux* auf alten Laptops", subscribers=95),
    listed("https://sciences.example/rss", "Sciences du jour", "fr science", "Une comète visible", subscribers=310),
    listed("https://cocina.example/rss", "Cocina de mercado", "es recetas", "Tres sopas de otoño", subscribers=57),
)
_RUST = listed("https://rust.example/feed", "Rust Digest", "en rust", "").channel
_HOURLY = structs.replace(feed(HOURLY, "Hourly"), language="en")
DIRECTORY = (
    *_CHANNELS,
    *(
        marked(SearchHit(_RUST, Entry(str(number), title, f"https://rust.example/{number}")), snippet)
        for number, (title, snippet) in enumerate(
            (
                ("Async closures arrive", "The next *Rust* release lets closures await without boxing."),
                ("A borrow checker you can read", "How *Rust* explains its errors now, with examples."),
                ("Ferris goes to space", "A satellite runs *Rust*, and its authors tell how."),
                ("What is left of unsafe", "An audit of the *Rust* standard library."),
            ),
            1,
        )
    ),
    *(
        marked(
            SearchHit(_HOURLY, Entry(str(number), f"Headlines at {number}", f"{HOURLY}/{number}")), "The latest *news*"
        )
        for number in range(100)
    ),
)


def visitor() -> Person:
    """Somebody new, in front of a small web."""
    first = Entry("a", "Summer arrived", "https://news.example/summer")
    older = Entry("b", "Spring ended", "https://news.example/spring")
    seen = Entry("p", "Prices", "https://shop.example/prices", "Pears 1.99\nPlums 3.00")
    common = feed(protected_url(COMMON, SHARED), "Common")
    login = Credential("Authorization", "Basic YWxpY2U6c2VjcmV0")  # alice, secret
    return Person(
        web={
            NEWS: ProbeReply(structs.replace(feed(NEWS, "The News"), version=4), (first, older)),
            BLOG: ProbeReply(feed(BLOG, "A Blog")),
            HOURLY: ProbeReply(feed(HOURLY, "Hourly")),
            POPULAR: ProbeReply(feed(POPULAR, "Popular")),
            DOWN: ProbeReply(feed(DOWN, "Down")),
            PAUSED: ProbeReply(feed(PAUSED, "Paused")),
            "https://news.example/": ProbeReply(
                structs.replace(feed(NEWS, "The News"), version=4), (first,), discovered=True
            ),
            "https://many.example/": ProbeReply(choices=(FeedLink(NEWS, "News"), FeedLink(BLOG, "Blog"))),
            "https://video.example/@someone": ProbeReply(
                choices=(FeedLink(NEWS, "All videos"), FeedLink(BLOG, "Videos without Shorts"))
            ),
            "https://shop.example/prices": ProbeReply(page=True),
            "page https://shop.example/prices": ProbeReply(page("https://shop.example/prices", "Prices"), (seen,)),
            f"page {LIST}": ProbeReply(page(LIST, "Prices")),
            f"page {PRICE}": ProbeReply(page(PRICE, "Prices"), (structs.replace(seen, summary="24,90 €"),)),
            f"page {TABLE}": ProbeReply(page(TABLE, "Prices")),
            f"page {API}": ProbeReply(page(API, ""), (structs.replace(seen, title="", summary="1.99 3.00"),)),
            f"page {FILTERED}": errors.BadUrl(
                "Filters (`?…`) and functions can't be used in `{selector}`. Select all items instead, e.g. "
                "`{example}`.",
                selector="json=$.items[?@.price<5]",
                example="json=$.items[*].price",
            ),
            **TROUBLES,
        },
        polled={common.id: common},
        guarded={GUARDED: (login, ProbeReply(feed(protected_url(GUARDED, "own"), "Guarded"), (first,)))},
        directory=DIRECTORY,
        corrections=(Correction("pyhton", "python"), Correction("rsut", "rust")),
        nodes={channel_id(NEWS): node_uri("pubsub.example", channel_id(NEWS))},
        reasons={
            channel_id(NEWS): polled(3, 900.0, BindingConstraint.NONE),
            channel_id(BLOG): polled(1, 1.0, BindingConstraint.NODES, ring_nodes=1),
            channel_id(HOURLY): polled(1, 3_600.0, BindingConstraint.PUBLISHER, PollingLimits(hint_s=3_600)),
            channel_id(POPULAR): structs.replace(
                polled(30, 900.0, BindingConstraint.CHANNEL_BUDGET), present_speed=2.0
            ),
            channel_id(DOWN): structs.replace(
                polled(1, 86_400.0, BindingConstraint.FAILURE, PollingLimits(failure_s=86_400)), present_speed=0.5
            ),
            channel_id(PAUSED): polled(
                1, 7_200.0, BindingConstraint.PAUSE, PollingLimits(paused_until_s=int(NOW_S) + 7_200)
            ),
        },
        failing={channel_id(DOWN): ("unreachable", NOW_S - 10 * 86_400)},
    )


def polled(
    workers: int,
    interval_s: float,
    bound: BindingConstraint,
    limits: PollingLimits = NO_LIMITS,
    *,
    ring_nodes: int = 60,
) -> PollExplanation:
    """Why a channel of 1,200 subscribers is polled by so many workers of the ring, each so often."""
    return explanation(
        channel_id(NEWS),
        [f"{number:040x}" for number in range(workers)],
        NOW_S + min(95.0, interval_s / workers) if workers > 1 else NOW_S,
        interval_s,
        bound,
        now_s=NOW_S - 0.5,
        ring_nodes=ring_nodes,
        limits=limits,
        subscribers=1_200,
        update_interval_s=3 * 86_400.0,
    )
