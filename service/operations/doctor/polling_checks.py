"""Checks of polling: the channels' polling levels, and whether limits prevent the polling policy from having an effect.

The polling level of a channel determines how many nodes poll it (Corona §3.1).
"""

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Mapping
from itertools import chain

from service.corona.fleet_policy import FleetObjective, Levels
from service.corona.optimizer.poll_explanation import BindingConstraint
from service.errors import Unreachable
from service.net.internal_clients import ProcessClient
from service.operations.doctor.redis_checks import read_store
from service.operations.doctor.report import CheckResult
from service.operations.poll_constraints import BOUND_LABELS, bound_shares, one_bound_warning
from service.settings import Settings
from service.store import Store

_CHANNELS_METRIC = re.compile(
    r'^coronet_(?:owned|planned)_channels\{(level|constraint)="([\w-]+)"\} (\d+(?:\.\d+)?)$', re.MULTILINE
)


async def check_polling(settings: Settings) -> list[CheckResult]:
    """Report how many channels each polling level has, and warn if nearly all channels have the same limit.

    A channel's polling level determines how many nodes poll it. If the same limit determines the poll rates of
    nearly all channels, the polling policy has no effect.

    The data is read from the metrics of all workers. The result is [] if there are no workers or if Redis is
    unavailable.
    """

    async def read(store: Store) -> tuple[set[str], FleetObjective]:
        urls = {node.metrics_url for node in await store.ring.nodes() if node.metrics_url}
        return urls, await store.fleet_policy.get() or settings.policy().objective

    urls, objective = await read_store(settings, read) or (set[str](), FleetObjective())
    if not urls:
        return []
    async with ProcessClient(settings.metrics_token.get_secret_value()) as processes:
        texts = await asyncio.gather(*(_metrics(processes, url) for url in urls))
    channels = {"level": Counter[str](), "constraint": Counter[str]()}
    for label, value, count in chain.from_iterable(map(_CHANNELS_METRIC.findall, texts)):
        channels[label][value] += int(float(count))
    # A worker of another release may have other constraints.
    by_constraint = {each: count for each in BindingConstraint if (count := channels["constraint"][each])}
    return [judge_levels(objective.levels, +channels["level"], texts.count("")), judge_polling(by_constraint)]


async def _metrics(processes: ProcessClient, url: str) -> str:
    """Return the metrics of the process at ``url`` in text format; "" if they cannot be read."""
    with contextlib.suppress(Unreachable):
        return await processes.metrics(url)
    return ""


def judge_levels(levels: Levels, channels: Mapping[str, int], unread: int) -> CheckResult:
    """Return a check result that states the number of channels at each polling level. It is always ``ok``.

    A channel's polling level determines how many nodes poll it.

    - ``levels`` is ``CONTINUOUS`` if any number of nodes may poll a channel. Otherwise it is a base b: from each
      level to the next, the number of nodes is divided by b.
    - ``channels`` maps each level to its number of channels.
    - ``unread`` is the number of workers whose metrics could not be read.
    """
    kind = "any number of nodes" if levels is Levels.CONTINUOUS else f"base {levels}"
    counts = ", ".join(f"{channels[level]} at level {level}" for level in sorted(channels, key=int))
    details = f"{kind}; channels: {counts or 'none planned yet'}"
    if unread:
        details += f"; the metrics of {unread} of the workers cannot be read from here"
    return CheckResult("Polling levels", ok=True, details=details)


def judge_polling(channels: Mapping[BindingConstraint, int]) -> CheckResult:
    """Return a check result that states which constraints determine how often channels are polled.

    ``channels`` maps each constraint to the number of channels whose polling frequency it determines. The result is a
    warning if nearly all channels have the same constraint, because the polling policy then has no effect.
    """
    shares = [f"{100 * share:.0f} % {BOUND_LABELS[bound]}" for bound, share in bound_shares(channels).items()]
    details = f"channels: {', '.join(shares)}" if shares else "no channels are planned yet"
    warning = one_bound_warning(channels)
    return CheckResult("Polls", ok=not warning, details=details, advice=warning)
