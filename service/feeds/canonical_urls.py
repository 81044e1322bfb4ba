r"""Canonical URLs, which identify channels (watched feeds and pages).

In a canonical URL:

- Scheme and host are in lower case.
- The host is in IDNA's ASCII form.
- An IPv4 host is in dotted decimal form, even if it was written as ``0x7f.1`` or ``2130706433``.
- The default port, the fragment, an empty query and tracking parameters are removed.
- Non-ASCII characters in the path are percent-encoded; otherwise the path is unchanged.

A channel can watch a part of a page. The URL of such a channel has a fragment: the part's selector, percent-encoded.
This is a CSS selector, an XPath after ``xpath=``, or a JSONPath after ``json=``. The fragment is removed before the
page is fetched. :func:`canonical_url` removes it, too.

A *protected* channel is fetched with a credential (:mod:`service.feeds.credentials`). Its URL has a fragment that names
its reader: the user whose credential it is, or ``SHARED``. Thus each reader's credential has a channel of its own. The
credential is not part of the URL.

URL parsers interpret some characters differently: user information, backslashes, control characters, and percent signs
in hosts. A URL with any of these is therefore rejected before it is parsed.
"""

import functools
import hashlib
import ipaddress
import re
import unicodedata
from urllib.parse import quote, unquote, unquote_plus, urljoin, urlsplit

import idna

from service.errors import BadUrl
from service.model import ChannelId

MAX_URL_CHARS = 2000
MAX_SELECTOR_CHARS = 200
SHARED = "shared"
"""The reader of a protected channel that an admin has added, and to which every user may subscribe."""
_READER = "login="
_MAX_HOST_CHARS = 253
_MAX_PORT = 65535
_MAX_CACHED_HOSTS = 2_000
_IPV4_BYTES = 4

_INVISIBLE = {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"}
_VISIBLE_ASCII = re.compile(r"[!-~]*")
_PORTS = {"http": 80, "https": 443}
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):(?=//)|([a-z][a-z0-9+-]*):(?!\d)", re.IGNORECASE)
_PARTS = re.compile(r"(https?)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.IGNORECASE)
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]+)(?::([0-9]{0,5}))?")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"0x[0-9a-f]*|[0-9]+")
# URLs that are canonical already, as most are, except perhaps for a missing path.
_CANONICAL = re.compile(
    r"https?://(?![^/]{254})(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
    r"(/[A-Za-z0-9._~%/:@!$&'()*+,;=|^\[\]-]*)?"
)
_BARE_HOST = re.compile(r"(?:[^\W_][\w-]*\.)+[^\W\d_]{2,}\.?(?::\d{1,5})?(?:[/?#].*)?")
_SELECTOR_KIND = re.compile(r"(css|xpath|json) ?= ?", re.IGNORECASE)
_SAFE_IN_SELECTOR = ".:()*=,+~-_"
_SAFE_IN_PATH = "%/:@!$&'()*+,;=-._~[]|^?"

_TRACKING = frozenset({
    "fbclid", "gclid", "dclid", "gbraid", "wbraid", "msclkid", "yclid", "twclid", "ttclid", "igshid",
    "mc_cid", "mc_eid", "_hsenc", "_hsmi", "mkt_tok",
})  # fmt: skip


def canonical_url(text: str) -> str:
    """Return the canonical form of a URL that a person has typed or pasted. The function is idempotent.

    Surrounding ``<>``, white space and the prefix ``feed:`` are removed. If the scheme is missing, https is assumed.
    Raises :class:`BadUrl` with the reason in plain words.
    """
    if len(text) < MAX_URL_CHARS and (found := _CANONICAL.fullmatch(text)):
        return text if found[1] else f"{text}/"
    return _check_length(_without_tracking(_normalize(_with_scheme(text))))


def redirect_target(base: str, location: str) -> str:
    """Return the absolute, validated target of a redirect from the URL ``base``.

    ``location`` is the value of the Location header. Tracking parameters are kept. Raises :class:`BadUrl` if the target
    is not a valid http or https URL.
    """
    # Some publishers redirect each URL without tracking parameters to one with them. Removing them would cause an
    # endless loop.
    location = location.strip(" \t")
    _reject_characters(location)
    try:
        return _check_length(_normalize(urljoin(base, location)))
    except ValueError as error:
        raise BadUrl("“{text}” is not a URL.", text=_excerpt(location)) from error


def web_link(link: str) -> str:
    """Return an entry's link in canonical form, including its fragment; "" if it is not a valid http or https URL."""
    head, _, fragment = link.strip().partition("#")
    if not head.lower().startswith(("http://", "https://")):
        return ""
    try:
        _reject_characters(fragment)
        return _check_length(canonical_url(head) + (f"#{quote(fragment, safe=_SAFE_IN_PATH)}" if fragment else ""))
    except BadUrl:
        return ""


def page_url(url: str, selector: str) -> str:
    """Return the URL of the channel that watches a part of the page ``url``.

    ``selector`` is the selector of the part; "" means the whole page. It is a CSS selector, perhaps after ``css=``, an
    XPath after ``xpath=``, or a JSONPath after ``json=``. The selector's syntax is not checked.
    Raises :class:`BadUrl` if ``url`` is invalid, or if the selector is too long, contains an invisible character, or
    names a reader.
    """
    selector = _normalize_selector(selector)
    if selector.startswith(_READER):
        raise BadUrl("“{text}” is not a selector.", text=_excerpt(selector))
    if len(selector) > MAX_SELECTOR_CHARS:
        raise BadUrl("This selector is longer than {most} characters.", most=MAX_SELECTOR_CHARS)
    if any(unicodedata.category(character) in _INVISIBLE - {"Zs"} for character in selector):
        raise BadUrl("“{text}” contains an invisible character.", text=_excerpt(selector))
    fragment = f"#{quote(selector, safe=_SAFE_IN_SELECTOR)}" if selector else ""
    return _check_length(canonical_url(url) + fragment)


def is_selector_with_kind(text: str) -> bool:
    """Return whether ``text`` begins with ``css=``, ``xpath=`` or ``json=``."""
    return _SELECTOR_KIND.match(text) is not None


def selector_of(channel_url: str) -> str:
    """Return the selector in a channel's URL; "" for a whole page or a feed.

    It is a CSS selector, or begins with ``xpath=`` or ``json=``.
    """
    return "" if reader_of(channel_url) else unquote(channel_url.partition("#")[2])


def protected_url(url: str, reader: str) -> str:
    """Return the URL of the protected channel of ``reader``, a user id or ``SHARED``, at the canonical ``url``."""
    return f"{without_selector(url)}#{_READER}{reader}"


def reader_of(channel_url: str) -> str:
    """Return the reader of a protected channel: a user id or ``SHARED``; "" if the channel is not protected."""
    fragment = channel_url.partition("#")[2]
    return fragment.removeprefix(_READER) if fragment.startswith(_READER) else ""


def shown_url(channel_url: str) -> str:
    """Return a channel's URL without the reader, as it is shown to people and exported."""
    return without_selector(channel_url) if reader_of(channel_url) else channel_url


def origin_of(url: str) -> str:
    """Return the origin of a canonical URL (RFC 6454): the scheme, the host, and the port unless it is the default."""
    return "/".join(url.split("/", 3)[:3])


def without_selector(channel_url: str) -> str:
    """Return the URL from which a channel is fetched: the channel's URL without the selector."""
    return channel_url.partition("#")[0]


def channel_id(canonical: str) -> ChannelId:
    """Return the id of the channel with the URL ``canonical``: the URL's SHA-1 hash in hexadecimal."""
    # The id determines which nodes poll the channel.
    return hashlib.sha1(canonical.encode(), usedforsecurity=False).hexdigest()


@functools.lru_cache(_MAX_CACHED_HOSTS)
def host_of(url: str) -> str:
    """Return the host of a canonical URL; an IPv6 address is returned without brackets."""
    return urlsplit(url).hostname or ""


@functools.lru_cache(_MAX_CACHED_HOSTS)
def is_loopback(host: str) -> bool:
    """Return whether ``host``, the host of a canonical URL, is ``localhost`` or a loopback address."""
    # Other names may also resolve to loopback addresses; the address guard checks these when a connection is made.
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def https_variant(url: str) -> str:
    """Return ``url``, an http URL, with its scheme changed to https.

    The result is "" if ``url`` already has the scheme https, or if it contains a port.
    """
    parts = urlsplit(url)
    return f"https{url.removeprefix('http')}" if parts.scheme == "http" and parts.port is None else ""


def looks_like_url(text: str) -> bool:
    """Return whether ``text``, a user's whole message, is probably meant as a URL. The URL may be invalid."""
    text = text.strip().removeprefix("<").removesuffix(">")
    if any(character.isspace() for character in text):
        return False
    lowered = text.lower()
    return lowered.startswith(("http:", "https:", "feed:", "localhost:")) or bool(_BARE_HOST.fullmatch(text))


def _normalize_selector(selector: str) -> str:
    """Collapse white space, write the kind of the selector in lower case, and remove the kind ``css=``."""
    selector = " ".join(selector.split())
    while (kind := _SELECTOR_KIND.match(selector)) is not None:
        expression = selector[kind.end() :]
        if kind[1].lower() != "css":
            return f"{kind[1].lower()}={expression}"
        selector = expression
    return selector


def _excerpt(text: str) -> str:
    visible = "".join("?" if unicodedata.category(c) in _INVISIBLE else c for c in text[:80])
    return f"{visible}…" if len(text) > len(visible) else visible


def _with_scheme(text: str) -> str:
    text = text.strip().removeprefix("<").removesuffix(">").strip()
    if not text:
        raise BadUrl("The URL is missing.")
    _check_length(text)
    _reject_characters(text)
    while text[:5].lower() == "feed:":
        text = text[5:]
    if text.startswith("//"):
        return f"https:{text}"
    scheme = _SCHEME.match(text)
    if not scheme:
        return f"https://{text}"
    if (scheme[1] or scheme[2]).lower() not in _PORTS:
        raise BadUrl("“{text}” isn't a web address; it has to start with http:// or https://.", text=_excerpt(text))
    return text


def _check_length(url: str) -> str:
    if len(url) > MAX_URL_CHARS:
        raise BadUrl("This URL is longer than {most} characters.", most=MAX_URL_CHARS)
    return url


def _reject_characters(text: str) -> None:
    if "\\" in text:
        raise BadUrl("“{text}” contains a backslash (\\); write / instead.", text=_excerpt(text))
    if not _VISIBLE_ASCII.fullmatch(text) and any(unicodedata.category(each) in _INVISIBLE for each in text):
        raise BadUrl("“{text}” contains white space or an invisible character.", text=_excerpt(text))


def _normalize(url: str) -> str:
    parts = _PARTS.fullmatch(url)
    if not parts or not parts[2]:
        raise BadUrl("“{text}” is not the URL of a host, like https://example.com/feed.", text=_excerpt(url))
    scheme, authority, path, query = parts[1].lower(), parts[2], parts[3], parts[4]
    if "@" in authority:
        raise BadUrl("This URL contains a user name or password; please leave them out.")
    host_and_port = _AUTHORITY.fullmatch(authority)
    if not host_and_port:
        raise BadUrl("“{text}” is not a host.", text=_excerpt(authority))
    port = _port(host_and_port[2] or "", _PORTS[scheme])
    query_part = f"?{quote(query, safe=_SAFE_IN_PATH)}" if query else ""
    return f"{scheme}://{_host(host_and_port[1])}{port}{quote(path, safe=_SAFE_IN_PATH) or '/'}{query_part}"


def _port(digits: str, default: int) -> str:
    if not digits or int(digits) == default:
        return ""
    if not 0 < int(digits) <= _MAX_PORT:
        raise BadUrl("{port} is not a port number.", port=digits)
    return f":{int(digits)}"


def _host(host: str) -> str:
    if host.startswith("["):
        return _ipv6(host[1:-1])
    name = _ascii_name(host).removesuffix(".")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(labels)
    if len(name) > _MAX_HOST_CHARS or not all(_LABEL.fullmatch(label) for label in labels):
        raise BadUrl("“{text}” is not a host name.", text=_excerpt(host))
    if len(labels) == 1 and name != "localhost":
        raise BadUrl("“{text}” is not a full host name; write it like example.com.", text=_excerpt(host))
    return name


def _ascii_name(host: str) -> str:
    if host.isascii():
        return host.lower()
    try:
        return idna.encode(host, uts46=True).decode()
    except (idna.IDNAError, UnicodeError):
        # Numbers in full-width digits are not IDNA labels, but some parsers accept them as addresses.
        plain = unicodedata.normalize("NFKC", host).lower()
        if plain.isascii():
            return plain
        raise BadUrl("“{text}” is not a host name.", text=_excerpt(host)) from None


def _ipv6(literal: str) -> str:
    try:
        return f"[{ipaddress.IPv6Address(literal if '%' not in literal else '')}]"
    except ValueError:
        raise BadUrl("“{text}” is not an IPv6 address.", text=_excerpt(f"[{literal}]")) from None


def _ipv4(labels: list[str]) -> str:
    """Return an IPv4 host in dotted decimal form.

    ``labels`` are the parts of the host between the dots, at most 4. Each is a decimal, octal or hexadecimal number,
    interpreted as browsers do (WHATWG URL, "IPv4 parser"). Raises :class:`BadUrl` if the labels are not an IPv4
    address.
    """
    shown = _excerpt(".".join(labels))
    if len(labels) > _IPV4_BYTES or not all(_NUMBER.fullmatch(label) for label in labels):
        raise BadUrl("“{text}” is not a host name.", text=shown)
    try:
        *leading, last = (_ipv4_number(label) for label in labels)
        octets = bytes(leading) + last.to_bytes(_IPV4_BYTES - len(leading), "big")
    except (ValueError, OverflowError):
        raise BadUrl("“{text}” is not an IPv4 address.", text=shown) from None
    return str(ipaddress.IPv4Address(octets))


def _ipv4_number(label: str) -> int:
    if label.startswith("0x"):
        return int(label[2:] or "0", 16)
    return int(label, 8 if label.startswith("0") and len(label) > 1 else 10)


def _without_tracking(url: str) -> str:
    head, _, query = url.partition("?")
    kept = [field for field in query.split("&") if not _is_tracking(field)]
    return f"{head}?{'&'.join(kept)}" if any(kept) else head


def _is_tracking(field: str) -> bool:
    name = unquote_plus(field.partition("=")[0]).lower()
    return name.startswith("utm_") or name in _TRACKING
