"""Pages for adding and viewing channels, the overview, errors and static files."""

import time

import pytest
from pydantic import SecretStr
from yarl import URL

from service.errors import Fault
from service.feeds.canonical_urls import SHARED, channel_id, page_url, protected_url
from service.feeds.credentials import parse_credential
from service.model import Channel, Entry, FeedLink, PollingHints, PollResult, Validators
from service.net.credential_vault import CredentialVault
from service.overlay.ring import BITS, to_hex
from service.settings import Settings
from service.store import Store
from service.store.channels.channel_records import Snapshot
from service.store.client import keys
from service.store.coordination.worker_requests import ErrorReply, PollReply, ProbeReply, ProbeRequest, WorkerReply
from tests.support.channels import count_channels, make_channel, polled, restate
from tests.support.console import Asked, Visitor, console, explained, logged_in, stranger, worker

HOSTILE = "<svg onload=alert(1)>{{7*7}}"


def _nothing(_: Asked) -> WorkerReply:
    return ErrorReply(Fault("bad-url", "Not asked for."))


@pytest.mark.parametrize(
    ("path", "words"),
    [("/", "No worker is running"), ("/channels", "There are no channels yet"), ("/nodes", "No worker is running")],
)
async def test_an_empty_console_suggests_the_first_step(ada: Visitor, path: str, words: str) -> None:
    status, text = await ada.get(path)
    assert status == 200
    assert words in text


async def test_publishers_content_is_escaped(store: Store, ada: Visitor) -> None:
    url = "https://example.org/?<script>"
    wanted = Channel(channel_id(url), url, created_s=1.0, listed=True)
    snapshot = Snapshot(Validators(), b"", HOSTILE, "javascript:alert(1)")
    entry = Entry("k", HOSTILE, "javascript:alert(2)", HOSTILE, published=1e300)
    await store.channels.create(wanted, snapshot, [entry], 1.0)
    poll = PollResult("a" * 40, 1.0, "not-a-feed", detail=HOSTILE)
    await polled(store, wanted.id, poll)
    for path in ("/channels", f"/channels/{wanted.id}", f"/channels/{wanted.id}/remove"):
        status, text = await ada.get(path)
        assert status == 200
        assert "&lt;svg onload=alert(1)&gt;{{7*7}}" in text
        assert "<svg onload" not in text
        assert 'href="javascript' not in text
        assert "{{7*7}}" in text


@pytest.mark.parametrize("cid", ["a" * 40, "A" * 40, "x", "r:nodes"])
async def test_an_unknown_channel_is_a_404_page(ada: Visitor, cid: str) -> None:
    status, text = await ada.get(f"/channels/{cid}")
    assert status == 404
    assert "There is no such channel" in text


async def test_a_channel_is_previewed_and_added(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store, "https://example.org/feed")
    asked = []

    def answer(body: Asked) -> WorkerReply:
        asked.append(body)
        return ProbeReply(channel, (Entry("k", "The latest", "https://example.org/1"),))

    async with worker(store, answer):
        status, text = await ada.post("/channels/add", url="example.org/feed#top")
        assert asked == [ProbeRequest("https://example.org/feed", keep=False)]
        assert status == 200
        assert "The latest" in text
        assert "It is not listed" in text
        assert 'name="url" value="example.org/feed#top"' in text
        assert await ada.post("/channels", url="example.org/feed#top") == (303, f"/channels/{channel.id}")
        assert asked[1:] == [ProbeRequest("https://example.org/feed")]
        assert "It is already listed" in (await ada.post("/channels/add", url="example.org/feed"))[1]
    kept = await store.channels.get(channel.id)
    assert kept is not None
    assert kept.listed


async def test_a_preview_creates_no_channel(store: Store, ada: Visitor) -> None:
    seen = ProbeReply(
        Channel("a" * 40, "https://example.org/feed", "A feed"), (Entry("k", "The latest"),), discovered=True
    )
    async with worker(store, lambda _: seen):
        _, text = await ada.post("/channels/add", url="example.org")
    assert "has not been added yet" in text
    assert "The page links to this feed" in text
    assert await count_channels(store) == 0


async def test_several_feeds_on_a_page_are_offered(store: Store, ada: Visitor) -> None:
    choices = (FeedLink("https://example.org/a", "Articles"), FeedLink("https://example.org/b"))
    async with worker(store, lambda _: ProbeReply(choices=choices)):
        status, text = await ada.post("/channels/add", url="https://example.org/")
    assert status == 200
    assert "Articles" in text
    assert 'value="https://example.org/b"' in text


async def test_a_page_without_a_feed_can_be_watched(store: Store, ada: Visitor) -> None:
    url = "https://example.org/prices"
    channel = await make_channel(store, page_url(url, "main table"), kind="page")
    script: dict[Asked, WorkerReply] = {
        ProbeRequest(url, keep=False): ProbeReply(page=True),
        ProbeRequest(page_url(url, "main tabel"), as_page=True, keep=False): ErrorReply(
            Fault("bad-url", "Nothing matches.")
        ),
        ProbeRequest(channel.url, as_page=True, keep=False): ProbeReply(channel, (Entry("k", summary="Apples 1.20"),)),
    }
    async with worker(store, script.__getitem__):
        status, text = await ada.post("/channels/add", url="example.org/prices")
        assert status == 200
        assert "You can watch the page itself" in text
        status, text = await ada.post("/channels/add", url="example.org/prices", as_page="1", selector="main tabel")
        assert status == 422
        assert "Nothing matches." in text
        assert 'value="main tabel"' in text
        status, text = await ada.post("/channels/add", url="example.org/prices", as_page="1", selector="main table")
        assert status == 200
        assert "Apples 1.20" in text
        assert "<code>main table</code>" in text
    _, text = await ada.get("/channels")
    assert "Part of a page" in text
    assert "<code>main table</code>" in text


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("dead", "Dead: failing for"),
        ("quarantined", "Quarantined: failing for"),
        ("refused", "Login refused: failing for"),
    ],
)
async def test_a_reported_condition_is_the_channels_state(
    store: Store, ada: Visitor, condition: str, words: str
) -> None:
    channel = await make_channel(store, listed=True)
    await polled(store, channel.id, PollResult("a" * 40, 5.0, "bad-status", 410))
    await store.redis.call("HSET", keys.channel(channel.id), "condition", condition)
    for path in ("/channels", f"/channels/{channel.id}"):
        assert words in (await ada.get(path))[1]


async def test_a_moved_channel_links_to_its_successor(store: Store, ada: Visitor) -> None:
    old, new = await make_channel(store), await make_channel(store, "https://example.net/feed")
    await store.redis.call("HSET", keys.channel(old.id), "moved_to", new.id, "dormant", "1")
    assert f'href="/channels/{new.id}">to another URL' in (await ada.get("/channels"))[1]
    _, text = await ada.get(f"/channels/{old.id}")
    assert f'href="/channels/{new.id}"' in text
    assert new.url in text


async def test_a_channel_shows_polling_hints_and_pauses(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store, listed=True)
    assert "Paused" not in (await ada.get(f"/channels/{channel.id}"))[1]
    await restate(store, channel.id, hints=PollingHints(ttl_s=7200.0))
    await store.request_budgets.pause(channel.id, 7200.0)
    _, text = await ada.get(f"/channels/{channel.id}")
    assert "at most every 2 h" in text
    assert "For another 2 h" in text


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        (Fault("host-not-found", "example.org does not exist."), 502, "does not exist"),
        (Fault("address-refused", "10.0.0.1 is not public."), 422, "is not public"),
    ],
)
async def test_a_worker_error_is_shown_and_the_form_keeps_the_url(
    store: Store, ada: Visitor, fault: Fault, status: int, words: str
) -> None:
    async with worker(store, lambda _: ErrorReply(fault)):
        got, text = await ada.post("/channels/add", url="https://example.org/")
    assert got == status
    assert words in text
    assert 'value="https://example.org/"' in text


@pytest.mark.parametrize(("url", "words"), [("", "The URL is missing"), ("ftp://example.org/", "http")])
async def test_an_invalid_url_is_refused_without_a_worker(ada: Visitor, url: str, words: str) -> None:
    status, text = await ada.post("/channels/add", url=url)
    assert status == 422
    assert words in text
    assert f'value="{url}"' in text


async def test_adding_without_a_worker_is_an_error(ada: Visitor) -> None:
    status, text = await ada.post("/channels/add", url="https://example.org/")
    assert status == 503
    assert "No worker is running" in text


async def test_a_channel_shows_its_polling_set_schedule_and_polls(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store, listed=True)
    nodes = [to_hex(int(place * (1 << BITS))) for place in (0.75, 0.25)]
    why = explained(channel.id, nodes, ring_nodes=8)
    async with (
        worker(store, _nothing, name="left", place=0.75, reason=why) as left,
        worker(store, _nothing, name="right", place=0.25, reason=why),
    ):
        await polled(store, channel.id, PollResult(left.id, 5.0, "bad-status", 404, "It said 404."))
        _, text = await ada.get(f"/channels/{channel.id}")
    assert "Failing for" in text
    assert "It said 404." in text
    assert text.count('class="node polls"') == 2
    assert {"left, right", "right, left"} & {text.partition("Polling set</dt><dd>")[2].partition("</dd>")[0]}
    assert "Level 2 of 3: 2 of 8 nodes poll it in turn, every 5 min" in text
    assert "a change is noticed after 2 min on average" in text
    assert "publishes about every 2 h" in text
    assert "Limited by</dt><dd>All nodes take part" in text


async def test_the_page_of_an_unpolled_channel_states_the_reason(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store)
    assert "no subscribers and is not listed" in (await ada.get(f"/channels/{channel.id}"))[1]
    listed = await make_channel(store, "https://example.net/feed", listed=True)
    assert "No worker is running" in (await ada.get(f"/channels/{listed.id}"))[1]
    await store.ring.join("silent", "", 600.0, lambda _: "0" * 40)
    assert "No worker answered within 1 s" in (await ada.get(f"/channels/{listed.id}"))[1]


async def test_the_ring_shows_the_wedge_of_a_channel(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store, listed=True)
    await make_channel(store, "https://example.net/other", listed=True)
    nodes = [to_hex(int(place * (1 << BITS))) for place in (0.75, 0.25)]
    why = explained(channel.id, nodes[:1], ring_nodes=2)
    async with (
        worker(store, _nothing, name="left", place=0.75, reason=why),
        worker(store, _nothing, name="right", place=0.25, reason=why),
    ):
        for text in (channel.id, channel.url):
            _, page = await ada.get(f"/nodes?channel={text}")
            assert page.count('class="wedge"') == 1
            assert page.count('class="node polls"') == 1
            assert f'href="/channels/{channel.id}"' in page
            assert "Level 1 of 1: 1 of 2 nodes polls it" in page
            assert f'hx-get="/nodes?channel={channel.id}"' in page
        _, page = await ada.get("/nodes?channel=<nothing>")
        assert "No channel has “&lt;nothing&gt;” in its title or URL" in page
        assert 'class="wedge"' not in page


async def test_poll_now_redirects_to_the_channel(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store, listed=True)
    async with worker(store, lambda _: PollReply(PollResult("a" * 40, 9.0, "unchanged", 304))):
        assert await ada.post(f"/channels/{channel.id}/poll") == (303, f"/channels/{channel.id}?polled=1")


async def test_a_failed_poll_is_explained_on_the_channels_page(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store, listed=True)
    status, text = await ada.post(f"/channels/{channel.id}/poll")
    assert status == 503
    assert "No worker is running" in text
    assert "Latest entries" in text


async def test_removing_a_channel_requires_confirmation(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe("bob@example.org", channel.id)
    _, text = await ada.get(f"/channels/{channel.id}/remove")
    assert "ends 1 subscription" in text
    assert await ada.post(f"/channels/{channel.id}/remove") == (303, "/channels?removed=1")
    assert await store.channels.get(channel.id) is None
    assert await store.subscriptions.of_user("bob@example.org") == []


async def test_the_overview_shows_key_figures(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store)
    await store.subscriptions.subscribe("bob@example.org", channel.id)
    await polled(store, channel.id, PollResult("a" * 40, time.time(), "new"))
    async with worker(store, _nothing):
        _, text = await ada.get("/")
    assert "Only one worker is running" in text
    assert ">1 <small>per min</small>" in text
    assert "bob@example.org" not in text


async def test_a_live_update_after_logout_reloads_the_page(eve: Visitor) -> None:
    async with eve.http.get("/", headers={"HX-Request": "true"}) as answer:
        assert (answer.status, answer.headers["HX-Refresh"]) == (401, "true")


async def test_an_internal_error_reveals_no_details(
    ada: Visitor, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> list[object]:
        raise RuntimeError("secret inside")

    monkeypatch.setattr(store.ring, "nodes", broken)
    status, text = await ada.get("/nodes")
    assert status == 500
    assert "under reference" in text
    assert "secret inside" not in text


async def test_only_static_files_are_served(ada: Visitor) -> None:
    assert (await ada.get("/static/vendor/htmx/htmx.min.js"))[0] == 200
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/nothing.css", "/static//etc/passwd"):
        assert (await ada.get(path))[0] == 404


async def test_login_returns_to_the_requested_page(served: tuple[str, object]) -> None:
    async with stranger(served[0]) as eve, eve.http.get("/channels?q=a&cursor=", allow_redirects=False) as answer:
        assert URL(answer.headers["Location"]).query["next"] == "/channels?q=a&cursor="


async def test_static_files_are_compressed_and_cached(ada: Visitor) -> None:
    path = "/static/console.css"
    async with ada.http.get(path, headers={"Accept-Encoding": "gzip"}) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert (await answer.text()).startswith("/*")
        tag = answer.headers["ETag"]
    async with ada.http.get(path, headers={"Accept-Encoding": "identity"}) as answer:
        assert "Content-Encoding" not in answer.headers
    async with ada.http.get(path, headers={"If-None-Match": tag}) as answer:
        assert answer.status == 304


async def test_a_private_feed_is_shared_without_its_login_on_any_page(store: Store) -> None:
    url = protected_url("https://example.org/feed", SHARED)
    channel, asked, secret = await make_channel(store, url), list[Asked](), "s3cret"

    def answer(body: Asked) -> WorkerReply:
        asked.append(body)
        return ProbeReply(channel, (Entry("k", "The latest"),))

    key = "k" * 32
    async with (
        console(store, credentials_key=key) as (origin, _),
        logged_in(origin, store) as ada,
        worker(store, answer),
    ):
        target = await ada.post("/channels", url="example.org/feed", credential=f"login ada {secret}")
        assert target == (303, f"/channels/{channel.id}")
        assert (await ada.post("/channels", url="example.org/feed", credential="secret"))[0] == 422
        pages = [(await ada.get(path))[1] for path in ("/log", "/channels", target[1])]
        assert "for everyone" in pages[2]
    (request,) = asked
    assert isinstance(request, ProbeRequest)
    assert request.url == url
    vault = CredentialVault(Settings(credentials_key=SecretStr(key)))
    assert vault.open(request.credential, url) == parse_credential(f"login ada {secret}")
    assert not [page for page in pages if secret in page]
    kept = await store.channels.get(channel.id)
    assert kept is not None
    assert kept.listed


async def test_without_a_key_no_private_feed_is_added(ada: Visitor) -> None:
    status, text = await ada.post("/channels", url="example.org/feed", credential="login ada s3cret")
    assert status == 422
    assert "credentials_key" in text
    assert "s3cret" not in text


async def test_a_password_in_a_url_does_not_get_into_the_audit_log(ada: Visitor) -> None:
    status, _ = await ada.post("/channels", url="https://ada:s3cret@example.org/feed")
    assert status == 422
    assert "s3cret" not in (await ada.get("/log"))[1]


async def test_the_selector_of_a_protected_page_cannot_be_changed(store: Store, ada: Visitor) -> None:
    channel = await make_channel(store, protected_url("https://example.org/page", SHARED), kind="page")
    status, text = await ada.post(f"/channels/{channel.id}/selector", selector="main")
    assert status == 422
    assert "behind a login" in text
