"""All operations of the JSON API, and the path below which they are served."""

from collections.abc import Sequence
from typing import Final

from service.console.api.operations import Operation
from service.console.resources.access import account_settings, audit_log, console_accounts, sessions_and_api_keys
from service.console.resources.channels import (
    add_channel,
    bulk_changes,
    channel_list,
    channel_settings,
    channel_versions,
    host_blocks,
    opml,
    page_selector,
    sites,
)
from service.console.resources.channels import channel as channel_page
from service.console.resources.delivery import announcements, dead_letters, delivery_status
from service.console.resources.fleet import (
    about,
    directory,
    discover,
    nodes,
    overview,
    policy,
    search_explanation,
    shards,
)
from service.console.resources.people import dry_runs, invitations, people, xmpp_domain_blocks

PREFIX: Final = "/api/v1"


OPERATIONS: Final[Sequence[Operation]] = (
    *add_channel.OPERATIONS,
    *page_selector.OPERATIONS,
    *channel_list.OPERATIONS,
    *bulk_changes.OPERATIONS,
    *sites.OPERATIONS,
    *host_blocks.OPERATIONS,
    *channel_page.OPERATIONS,
    *channel_settings.OPERATIONS,
    *channel_versions.OPERATIONS,
    *opml.OPERATIONS,
    *policy.OPERATIONS,
    *nodes.OPERATIONS,
    *shards.OPERATIONS,
    *about.OPERATIONS,
    *people.OPERATIONS,
    *dry_runs.OPERATIONS,
    *invitations.OPERATIONS,
    *xmpp_domain_blocks.OPERATIONS,
    *announcements.OPERATIONS,
    *delivery_status.OPERATIONS,
    *dead_letters.OPERATIONS,
    *account_settings.OPERATIONS,
    *console_accounts.OPERATIONS,
    *sessions_and_api_keys.OPERATIONS,
    *audit_log.OPERATIONS,
    *overview.OPERATIONS,
    *directory.OPERATIONS,
    *search_explanation.OPERATIONS,
    *discover.OPERATIONS,
)
