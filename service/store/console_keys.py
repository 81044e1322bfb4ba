"""The console's Redis keys, as :mod:`service.store.keys` has the others.

===========================  ======  =====================================================================
key                          type    meaning
===========================  ======  =====================================================================
``cn:{console}:accounts``    hash    name → Account (msgpack)
``cn:{console}:setup``       set     hashes of setup tokens; expires; gone once there is an account
``cn:{console}:links``       hash    name → the one link (msgpack) that sets the account's password; expires
``cn:{console}:login:H``     string  H: a session token's hash → the session (msgpack); expires
``cn:{console}:logins``      zset    those hashes → when the session ends (Unix s); expires
``cn:{console}:keys``        hash    an API key's hash → ApiKey (msgpack)
``cn:{console}:keys:used``   hash    an API key's hash → when it was used last (Unix s)
``cn:{console}:begun``       hash    a note → Deed (msgpack) that was begun and has not ended
``cn:{console}:audit``       stream  ``d``: Deed (msgpack) that has ended; ~10,000
``cn:{console}:repeat:H``    string  H: hash of who asked and the key they chose → Kept (msgpack); expires
``cn:{console}:attempts:WINDOW:H``  string  H: hash of a network, account, both, or browser → logins tried in the
                                     present WINDOW (``minute`` or ``hour``); expires
``cn:{console}:browsers:H``  zset    H: hash of an account's name → hashes of known browsers' tokens → until when
                                     (Unix s); expires
===========================  ======  =====================================================================
"""

ACCOUNTS = "cn:{console}:accounts"
SETUP = "cn:{console}:setup"
LINKS = "cn:{console}:links"
SESSIONS = "cn:{console}:logins"
KEYS = "cn:{console}:keys"
KEYS_USED = "cn:{console}:keys:used"
BEGUN = "cn:{console}:begun"
AUDIT = "cn:{console}:audit"


def session(token_hash: str) -> str:
    """A session of the console, by the hash of its token."""
    return f"cn:{{console}}:login:{token_hash}"


def repeat(who_hash: str) -> str:
    """What was answered to a request that may be sent again, by the hash of who asked and the key they chose."""
    return f"cn:{{console}}:repeat:{who_hash}"


def attempts(window: str, what_hash: str) -> str:
    """How often a login was tried from a network, on an account, or both, in the present window of time."""
    return f"cn:{{console}}:attempts:{window}:{what_hash}"


def known_browsers(name_hash: str) -> str:
    """The browsers that have logged in to an account, by the hash of its name."""
    return f"cn:{{console}}:browsers:{name_hash}"
