"""The services that the parts of one bot share."""

import msgspec

from bots.access_control import AccessControl
from bots.cluster.assigned_users import AssignedUsers
from bots.delivery.outbox_consumer import OutboxConsumer
from bots.dialogue.opml_import import OpmlImporter
from bots.i18n.translator import supported_language
from bots.xmpp.file_upload import FileUploader
from bots.xmpp.interface import XmppClient
from service.clock import Clock
from service.feeds.sandbox.opml_parser_client import OpmlParserClient
from service.net.address_guard import AddressGuard
from service.net.http_upload_client import HttpUploadClient
from service.search.searcher import Searcher
from service.settings import Settings
from service.store import Store
from service.store.people.users import UserState


class BotServices:
    """The connection, the store and the assigned users of one bot, and the services that its commands use."""

    def __init__(
        self, settings: Settings, store: Store, xmpp: XmppClient, clock: Clock, assigned_users: AssignedUsers
    ) -> None:
        """Create the services of the bot that is connected through ``xmpp`` and serves ``assigned_users``."""
        self.settings = settings
        self.store = store
        self.xmpp = xmpp
        self.clock = clock
        self.assigned_users = assigned_users
        self.delivery = OutboxConsumer(store, xmpp, clock, assigned_users, settings.messages_per_s_per_user)
        self.access = AccessControl(store, settings, xmpp.rooms)
        self.opml_importer = OpmlImporter(store, xmpp, assigned_users, settings.max_subscriptions_per_user)
        self.opml_parser_client = OpmlParserClient()
        self.search = Searcher(store, settings.public_from_subscribers)
        guard = AddressGuard(settings.allow_private, allowed_networks=settings.allowed_networks)
        self.uploads = FileUploader(xmpp, HttpUploadClient(settings.upload_url, settings.xmpp_host, guard))

    async def record_activity(self, known: UserState, tag: str) -> UserState:
        """Record that a user with access to the bot has written, and return the user's state from before.

        ``known`` is the user's stored state, and ``tag`` the language of the user's client (RFC 5646). A new user is
        marked as welcomed, and deliveries to an unreachable user are resumed. The returned state still states that the
        user was new or unreachable.
        """
        jid = known.jid
        if not known.welcomed:
            await self.store.users.mark_welcomed(jid)
            await self.store.home_addresses.keep(jid)
        if known.unreachable:
            subscriptions = await self.store.subscriptions.of_user(jid)
            await self.store.pauses.resume_reachable(jid, [each.channel for each in subscriptions])
        client_language = supported_language(tag)
        if client_language in ("", known.user_settings.client_language):
            return known
        await self.store.users.set_client_language(jid, client_language)
        self.delivery.on_settings_changed(jid)
        user_settings = msgspec.structs.replace(known.user_settings, client_language=client_language)
        return msgspec.structs.replace(known, user_settings=user_settings)
