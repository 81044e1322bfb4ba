"""The console's Redis keys, as :mod:`service.store.keys` has the others.

===========================  ======  =====================================================================
key                          type    meaning
===========================  ======  =====================================================================
``cn:{console}:accounts``    hash    name → Account (msgpack)
``cn:{console}:setup``       set     hashes of setup tokens; expires; gone once there is an account
``cn:{console}:invite:H``    string  H: hash of a link's token → the account whose password it sets; expires
``cn:{console}:login:H``     string  H: a session token's hash → the session (msgpack); expires
``cn:{console}:logins``      zset    those hashes → when the session ends (Unix s); expires
``cn:{console}:keys``        hash    an API key's hash → ApiKey (msgpack)
``cn:{console}:keys:used``   hash    an API key's hash → when it was used last (Unix s)
``cn:{console}:begun``       hash    a note → Deed (msgpack) that was begun and has not ended
``cn:{console}:audit``       stream  ``d``: Deed (msgpack) that has ended; ~10,000
``cn:{console}:repeat:H``    string  H: hash of who asked and the key they chose → Kept (msgpack); expires
``cn:{console}:attempts:H``  string  H: hash of an address or name → logins tried this minute; expires
===========================  ======  =====================================================================
"""

ACCOUNTS = "cn:{console}:accounts"
SETUP = "cn:{console}:setup"
SESSIONS = "cn:{console}:logins"
KEYS = "cn:{console}:keys"
KEYS_USED = "cn:{console}:keys:used"
BEGUN = "cn:{console}:begun"
AUDIT = "cn:{console}:audit"


def invitation(token_hash: str) -> str:
    """A link that lets an account choose its password, by the hash of its token."""
    return f"cn:{{console}}:invite:{token_hash}"


def session(token_hash: str) -> str:
    """A session of the console, by the hash of its token."""
    return f"cn:{{console}}:login:{token_hash}"


def repeat(who_hash: str) -> str:
    """What was answered to a request that may be sent again, by the hash of who asked and the key they chose."""
    return f"cn:{{console}}:repeat:{who_hash}"


def attempts(what_hash: str) -> str:
    """How often a login was tried from an address or on an account in the present minute."""
    return f"cn:{{console}}:attempts:{what_hash}"
