"""The back-off after a message to a user has bounced: for how long nothing is sent to the user.

It doubles with each bounce in a row, up to a maximum. It is longer after an error that a later attempt is unlikely to
change, such as an address that does not exist. :mod:`bots.delivery.unreachable_users` suspends users whose messages
bounce for 14 days.
"""

from typing import Final

_NO_RECIPIENT: Final = frozenset(
    {
        *("item-not-found", "gone", "jid-malformed", "remote-server-not-found", "forbidden", "not-allowed"),
        *("not-authorized", "not-acceptable"),  # the last is the answer to a blocked sender (XEP-0191)
    }
)
"""Stanza error conditions (RFC 6120 §8.3.3) that a later attempt is unlikely to change."""
_BACK_OFF_S: Final = (30.0, 3_600.0)
_BACK_OFF_WITHOUT_RECIPIENT_S: Final = (600.0, 43_200.0)
"""The first and the longest back-off after a bounce with a condition in ``_NO_RECIPIENT``. Each back-off is twice as
long as the previous one."""


def back_off_s(condition: str, bounces: int, jitter: float) -> float:
    """Return the seconds for which nothing is sent to a user after a bounce.

    ``condition`` is the name of the stanza error (RFC 6120 §8.3.3). ``bounces`` is the number of the user's bounces in
    a row before this one. ``jitter`` is a random number in [0, 1), which spreads retries: the full back-off is
    multiplied by ``(1 + jitter) / 2``.
    """
    first_s, longest_s = _BACK_OFF_WITHOUT_RECIPIENT_S if condition in _NO_RECIPIENT else _BACK_OFF_S
    doubled_s: float = first_s * 2**bounces
    return min(doubled_s, longest_s) * (1 + jitter) / 2
