"""The text of announcements by the operators, and the reply of the command that turns them on or off."""

from collections.abc import Sequence

from bots.i18n.translator import Translator
from bots.replies.base import Reply


def announcement_text(texts: Sequence[str], translator: Translator) -> str:
    """Return the text of a message with announcements. ``texts`` are the admins' words, oldest first."""
    sender = translator.gettext(
        "This is an announcement from the operators of this service. `announcements off`: get no more of them."
    )
    return "\n\n".join([*(f"📢 {text}" for text in texts), sender])


class AnnouncementsReply(Reply, frozen=True):
    """Says whether the user gets announcements; ``changed`` states whether that has just been set."""

    enabled: bool
    changed: bool = False

    def _text(self, translator: Translator) -> str:
        if self.changed and self.enabled:
            return translator.gettext("You'll get announcements from the operators of this service again.")
        if self.changed:
            return translator.gettext(
                "You'll get no more announcements from the operators of this service. `announcements on` turns them on."
            )
        if self.enabled:
            return translator.gettext(
                "You get announcements from the operators of this service. `announcements off` turns them off."
            )
        return translator.gettext(
            "You get no announcements from the operators of this service. `announcements on` turns them on."
        )
