"""Malicious and invalid URLs, responses and documents, with the bot's expected answers."""

import datetime as dt
import ssl
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import trustme

from tests.support.feed_documents import item, rss
from tests.support.hostile_documents import hostile
from tests.support.hostile_publisher import BAD_ANSWERS, DRIPS, ENDLESS, OK, endless
from tests.support.raw_http import Handler, answering, ok, redirect

SUBSCRIBED = r"^Subscribed to \*"
NO_PUBLIC_ADDRESS = "its address isn't part of the public web"
PORT_REFUSED = r"Port \d+ is not one that feeds are fetched from"
NO_URL = r"^I can't use that address\. "
NOT_FOLLOWED = "it redirects in circles, to nowhere, or out of the public web"
GARBLED = "its server's answer makes no sense to me"
TOO_LARGE = r"it's larger than 5 MB"
TOO_SLOW = r"127\.0\.0\.1 took longer than [\d.]+ s to respond\. Please try again later"
UNPROVEN = "I can't open a secure connection to"
DEADLY = "it's too big or too complicated for me"
NOTHING_THERE = "There's nothing to read"
NO_FEED = "neither a feed nor a readable page"
OFFERED = "Shall I monitor the page itself"
PAGE_SUBSCRIBED = "I'll let you know when it changes"

FEED = rss([item("a")])
PUBLIC, PUBLIC6 = "93.184.216.34", "[2606:4700::1111]"


class Case(NamedTuple):
    """A URL, the publisher's response, and patterns of the bot's replies: ``told`` to the URL, ``then`` to "yes".

    ``{port}`` in the URL is the publisher's port; ``{unique}`` makes accepted URLs unique, because ports are reused.
    """

    told: str
    make: Callable[[], Handler] = lambda: answering(ok(FEED), then_close=False)
    url: str = "http://127.0.0.1:{port}/{unique}"
    then: str = ""
    tls: Callable[[trustme.CA], ssl.SSLContext] | None = None


URLS = {
    **{
        url: Case(NO_PUBLIC_ADDRESS, url=url)
        for url in (
            "http://169.254.169.254/latest/meta-data/",
            "http://168.63.129.16/metadata",
            "http://[fd00:ec2::254]/latest/meta-data/",
            "http://169.254.1.1/",
            "http://[fe80::1]/",
            "http://10.0.0.1/",
            "http://[::ffff:10.0.0.1]/",
            "http://[::ffff:169.254.169.254]/",
            "http://0.0.0.0/",
            "http://[::]/",
            "http://0/",
            "http://2852039166/",
            "http://0xa9fea9fe/",
            "http://012.1/",
            "http://10.2/",
            "http://\uff11\uff10.\uff10.\uff10.\uff11/",
        )
    },
    **{
        url: Case(PORT_REFUSED, url=url)
        for url in (
            f"http://{PUBLIC}:22/",
            f"http://{PUBLIC}:25/",
            f"http://{PUBLIC}:6379/",
            f"http://{PUBLIC6}:6379/",
        )
    },
    **{
        url: Case(NO_URL + why, url=url)
        for url, why in (
            ("file:///etc/passwd", ".*isn't a web address"),
            ("gopher://127.0.0.1:6379/_INFO", ".*isn't a web address"),
            (f"http://{PUBLIC}\\@127.0.0.1:{{port}}/", ".*contains a backslash"),
            (f"http://127.0.0.1:{{port}}\\@{PUBLIC}/", ".*contains a backslash"),
            (f"http://{PUBLIC}%00@127.0.0.1:{{port}}/", "This URL contains a user name or password"),
            ("http://127.0.0.1%00.example.invalid/", ".*is not a host name"),
            ("http://127.0.0.1%0d%0aHost:example.invalid/", ".*is not a host"),
            ("http://127.0.0.1:{port}/\u200bfeed", ".*an invisible character"),
            ("http://127.0.0.1:{port}/" + "x" * 20_000, r"This URL is longer than 2,000 characters"),
        )
    },
    "a name that looks like another": Case(r"no site named xn--pple-43d\.invalid", url="http://\u0430pple.invalid/"),
    "a loopback that nobody listens on": Case(
        r"127\.0\.0\.1 cannot be reached: connection refused", url="http://127.1:1/"
    ),
    **{
        f"{host}, which the trial opens": Case(SUBSCRIBED, url=f"http://{host}:{{port}}/{{unique}}")
        for host in ("2130706433", "[::ffff:127.0.0.1]", "localhost.", "\u24c1ocalhost", "127\u30020\u30020\u30021")
    },
    "a line of its own": Case("isn't a CSS selector", url="http://127.0.0.1:{port}/{unique}\r\nX-Injected: yes"),
    **{
        f"a redirect to {target}": Case(told, partial(answering, redirect(target), then_close=False))
        for target, told in (
            ("http://169.254.169.254/latest/meta-data/", NO_PUBLIC_ADDRESS),
            ("http://0xa9fea9fe/", NO_PUBLIC_ADDRESS),
            ("http://10.1/", NO_PUBLIC_ADDRESS),
            ("//192.168.0.1/", NO_PUBLIC_ADDRESS),
            ("http://[::ffff:10.0.0.1]/", NO_PUBLIC_ADDRESS),
            ("http://0.0.0.0/", NO_PUBLIC_ADDRESS),
            (f"http://{PUBLIC}:25/", PORT_REFUSED),
            ("file:///etc/passwd", NOT_FOLLOWED),
            ("gopher://127.0.0.1:6379/_INFO", NOT_FOLLOWED),
            (f"http://{PUBLIC}\\@127.0.0.1/", NOT_FOLLOWED),
        )
    },
}

HTTP = {
    name: Case(told, BAD_ANSWERS[name])
    for told, names in {
        TOO_LARGE: (
            *("gzip bomb", "brotli bomb", "zstd bomb", "large by its own word", "large without a word", "endless"),
            *("endless chunks", "endless small chunks", "endless packed", "long header line", "many headers"),
            *("one header of 20 MB", "headers of 20 MB", "endless header", "endless headers"),
        ),
        GARBLED: (
            *("gzip in gzip", "gzip twice", "unknown encoding", "false gzip", "Content-Length too long"),
            *("Content-Length twice", "Content-Length negative", "broken chunk", "chunks cut off", "HTTP/0.9"),
            *("another protocol", "304 without a validator", "a change that nobody asked for"),
        ),
        f"{TOO_LARGE}|{GARBLED}": ("endless status line", "long status line"),
        r"closed the connection without a response": ("silence",),
        NOT_FOLLOWED: ("302 without Location", "a redirect to itself", "odd bytes in Location"),
    }.items()
    for name in names
}

DRIPPING = {
    f"{name}, byte by byte": Case(TOO_SLOW, partial(answering, start, *[b"1"] * 1000, pause_s=0.2))
    for name, start in DRIPS.items()
}

WITHOUT_END = {
    **{
        f"{name} without end": Case(f"{TOO_SLOW}|{TOO_LARGE}|{GARBLED}", partial(endless, *parts))
        for name, parts in ENDLESS.items()
    },
    "a pause without end": Case(TOO_SLOW, lambda: answering(OK, pause_s=60)),
}


def sent(body: bytes, content_type: str = "text/html; charset=utf-8") -> Callable[[], Handler]:
    return lambda: answering(ok(body, f"Content-Type: {content_type}"), then_close=False)


SAMPLES = {sample.name: sample for sample in hostile()}
ATTRIBUTES = b" ".join(b'a%d="1"' % number for number in range(100_000))
UNCLOSED = b"<b>" * 1_000_000
LOGIN = b"<!doctype html><title>Log in</title><p>Who are you?<form><input name=user><input type=password></form>"

DOCUMENTS = {
    **{
        name: Case(told, sent(SAMPLES[name].body, SAMPLES[name].content_type))
        for told, names in {
            SUBSCRIBED: (
                *("a billion laughs", "a quadratic blow-up", "an external entity", "an entity of itself"),
                *("impossible references", "40,000 equal attributes", "40,000 namespaces", "100,000 items"),
                *("a title of 5 MB", "a title of 5 MB of markup", "entries of nothing"),
                *("impossible dates", "UTF-16 of odd length", "null characters", "half a character"),
            ),
            DEADLY: ("200,000 empty items",),
            NOTHING_THERE: ("nothing", "only white space", "only comments", "an endless document type"),
            NO_FEED: (
                *("UTF-16 that is marked as the other one", "UTF-8 that is marked as UTF-16"),
                *("5 MB of braces", "nothing but bytes"),
            ),
        }.items()
        for name in names
    },
    "100,000 attributes": Case(DEADLY, sent(b"<rss><channel><item %b/></channel></rss>" % ATTRIBUTES, "text/xml")),
    "a million unclosed tags": Case(DEADLY, sent(b"<rss><channel>" + UNCLOSED, "text/xml")),
    "a page of 100,000 attributes": Case(OFFERED, sent(b"<html><p %b>Hello" % ATTRIBUTES), then=PAGE_SUBSCRIBED),
    "a page of a million unclosed tags": Case(OFFERED, sent(b"<html><p>Hello" + UNCLOSED), then=PAGE_SUBSCRIBED),
    "a page of scripts": Case(f"{NOTHING_THERE}.*without JavaScript", sent(SAMPLES["a page of scripts"].body)),
    "a page of nothing": Case(f"{NOTHING_THERE}.*page is empty", sent(b"<html><body></body></html>")),
    "a page of comments": Case(NOTHING_THERE, sent(b"<!-- x -->" * 100_000)),
    "a login page": Case(f"{NOTHING_THERE}.*asks for a login", sent(LOGIN)),
}


def certified(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def expired(authority: trustme.CA) -> ssl.SSLContext:
    past = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    return certified(authority.issue_cert("localhost", not_before=past, not_after=past + dt.timedelta(days=90)))


def self_signed(_authority: trustme.CA) -> ssl.SSLContext:
    own = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with own.cert_pem.tempfile() as certificate, own.private_key_pem.tempfile() as key:
        context.load_cert_chain(certificate, key)
    return context


CERTIFICATES = {
    f"a certificate that {fault}": Case(f"{UNPROVEN}.*{fault}", url="https://localhost:{port}/{unique}", tls=tls)
    for fault, tls in {
        "has expired": expired,
        "is self-signed": self_signed,
        "is for another name": lambda authority: certified(authority.issue_cert("example.com")),
        "comes from an authority that is not trusted": lambda _: certified(trustme.CA().issue_cert("localhost")),
    }.items()
}
