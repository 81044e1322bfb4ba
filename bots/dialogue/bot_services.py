"""The services shared by the parts of one bot."""

from bots.access_control import AccessControl
from bots.cluster.partitions import AssignedUsers
from bots.command_rate_limits import CommandRateLimiter
from bots.delivery.outbox_consumer import OutboxConsumer
from bots.dialogue.opml_import import OpmlImporter
from bots.webhooks.sender import WebhookSender
from bots.xmpp.file_upload import FileUploader
from bots.xmpp.interface import XmppClient
from service.clock import Clock
from service.feeds.sandbox.parser_client import OpmlParserClient
from service.net.address_guard import AddressGuard
from service.net.credential_vault import CredentialVault
from service.net.http_upload_client import HttpUploadClient
from service.search.searcher import Searcher
from service.settings import Settings
from service.store import Store


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
        self.webhooks = WebhookSender(settings, store, xmpp, clock, assigned_users)
        self.access = AccessControl(store, settings, xmpp.rooms)
        self.rate_limiter = CommandRateLimiter(store, settings, self.access)
        self.opml_parser_client = OpmlParserClient()
        self.vault = CredentialVault(settings)
        self.search = Searcher(store, settings.public_from_subscribers)
        guard = AddressGuard(settings.allow_private, allowed_networks=settings.allowed_networks)
        files = HttpUploadClient(settings.upload_url, settings.xmpp_host, guard, settings.xmpp_ca_file)
        self.uploads = FileUploader(xmpp, files)
        max_subscriptions = settings.max_subscriptions_per_user
        self.opml_importer = OpmlImporter(store, xmpp, assigned_users, self.uploads, max_subscriptions)
