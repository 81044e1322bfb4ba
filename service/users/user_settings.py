"""A user's settings for all messages, and the delivery times that these settings allow.

The settings are quiet hours, digests, time zone, language, and whether messages wait while the user is away.
"""

from datetime import timedelta

import msgspec

from service.users.quiet_hours_and_digests import DigestSchedule, QuietHours, next_digest_s, quiet_until_s


class UserSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """One user's settings for messages.

    - ``zone``: the name of the user's time zone in the tz database.
    - ``quiet``: the quiet hours, during which no messages are sent; None if there are none.
    - ``digest``: when messages are sent as a digest (several in one); None if each is sent by itself.
    - ``heeds_presence``: whether messages wait while the user is away, busy or offline. It has no effect if the bot
      cannot see the user's presence.
    - ``language``: the tag of the language that the user has chosen; "" if the user has not chosen any.
    - ``client_language``: the tag of the language that the user's client last declared; "" if it has not declared any.
    - ``announcements``: whether the user receives announcements from the operators.
    """

    zone: str = "UTC"
    quiet: QuietHours | None = None
    digest: DigestSchedule | None = None
    heeds_presence: bool = False
    language: str = ""
    client_language: str = ""
    announcements: bool = True

    @property
    def effective_language(self) -> str:
        """The tag of the user's language; "" if it is unknown.

        This is the language that the user has chosen, or else the language that the user's client has declared.
        """
        return self.language or self.client_language

    @property
    def has_delivery_delays(self) -> bool:
        """Whether any of these settings can delay messages."""
        return self.quiet is not None or self.digest is not None or self.heeds_presence


DEFAULT_USER_SETTINGS = UserSettings()
"""The settings of a user who has not changed any: messages are sent at any time, without delay."""


def earliest_delivery_s(user_settings: UserSettings, queued_s: float, now_s: float) -> float:
    """Return the earliest time, not before ``now_s``, at which a user's settings allow a message to be sent.

    ``queued_s`` is when the message was queued. All times are Unix times in seconds.
    """
    due_s = now_s
    if user_settings.digest is not None:
        due_s = max(now_s, next_digest_s(user_settings.digest, user_settings.zone, queued_s))
    while (
        user_settings.quiet is not None
        and (ends_s := quiet_until_s(user_settings.quiet, user_settings.zone, due_s)) is not None
    ):
        if ends_s - now_s > timedelta(weeks=1).total_seconds():
            return ends_s  # quiet hours without a gap: the settings will have changed by then
        due_s = ends_s
    return due_s
