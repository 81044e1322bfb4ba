"""The constraints that determine how often channels are polled, such as a request limit.

For each constraint, this module provides a label, advice, and the share of channels whose polling frequency it
determines. They are shown by ``coronet doctor`` and on the console's Policy page.

The goal of the polling policy has an effect only while different channels have different constraints. If nearly all
channels have the same constraint, :func:`one_bound_warning` says what to change.
"""

from collections.abc import Mapping
from typing import Final

from service.corona.optimizer.poll_explanation import BindingConstraint

ONE_BOUND_SHARE: Final = 0.9
""":func:`one_bound_warning` returns a warning if more than this share of all channels have the same constraint."""

MIN_CHANNELS: Final = 10
"""Minimum number of channels for which :func:`one_bound_warning` returns a warning. If there are fewer channels, it may
be a coincidence that all of them have the same constraint."""

BOUND_LABELS: Final = {
    BindingConstraint.NONE: "regular share of all polls",
    BindingConstraint.LONGEST_WAIT: "at the policy's maximum delay",
    BindingConstraint.CHANNEL_WAIT: "at the channel's own maximum delay",
    BindingConstraint.CHANNEL_INTERVAL: "at the channel's own minimum interval",
    BindingConstraint.PUBLISHER: "at the interval that the publisher asks for",
    BindingConstraint.FAILURE: "less often while polls fail",
    BindingConstraint.PAUSE: "paused",
    BindingConstraint.NODES: "all nodes take part",
    BindingConstraint.CHANNEL_BUDGET: "at the request limit per channel",
    BindingConstraint.HOST_BUDGET: "at the request limit of the site",
    BindingConstraint.FLEET_BUDGET: "the fleet's poll budget is too small for the maximum delays",
}

_ADVICE: Final = {
    BindingConstraint.LONGEST_WAIT: "To let the goal decide, raise the policy's demand factor or maximum delay.",
    BindingConstraint.CHANNEL_WAIT: "To let the goal decide, remove the maximum delays of single channels.",
    BindingConstraint.CHANNEL_INTERVAL: "To let the goal decide, remove the minimum intervals of single channels.",
    BindingConstraint.PUBLISHER: "Publishers decide here; fewer polls would do as well.",
    BindingConstraint.FAILURE: "If they all began to fail at the same time, check this fleet's own network and DNS.",
    BindingConstraint.PAUSE: "Check whether sites refuse this fleet's requests (429 or 503).",
    BindingConstraint.NODES: "To poll them more often, start more workers; to make fewer polls, set a poll budget.",
    BindingConstraint.CHANNEL_BUDGET: (
        "To let the goal decide, lower the policy's demand factor; to poll them more often, raise the settings"
        " polls_per_hour_for_one_subscriber and max_polls_per_hour."
    ),
    BindingConstraint.HOST_BUDGET: "To poll them more often, raise the limits of their sites on the page Hosts.",
    BindingConstraint.FLEET_BUDGET: "Raise the poll budget or the maximum delay.",
}


def bound_shares(channels: Mapping[BindingConstraint, int]) -> dict[BindingConstraint, float]:
    """Return, for each constraint on polls, the fraction of channels to which it applies, largest first.

    A constraint, such as a request limit, applies to a channel if it determines how often the channel is polled.
    ``channels`` maps each constraint to the number of these channels. Fractions are between 0 and 1. The result is
    empty if there are no channels.
    """
    total = sum(channels.values())
    shares = {bound: count / total for bound, count in channels.items() if count}
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def one_bound_warning(channels: Mapping[BindingConstraint, int]) -> str:
    """Return a warning if the same constraint determines how often nearly all channels are polled; otherwise "".

    "Nearly all" means more than the fraction ``ONE_BOUND_SHARE``. The warning says what the operator can change.
    There is no warning if nearly all channels have no constraint, or if there are fewer than ``MIN_CHANNELS``
    channels.

    ``channels`` maps each constraint to the number of channels to which it applies.
    """
    bound, share = next(iter(bound_shares(channels).items()), (BindingConstraint.NONE, 0.0))
    is_few = sum(channels.values()) < MIN_CHANNELS
    if is_few or bound is BindingConstraint.NONE or share <= ONE_BOUND_SHARE:
        return ""
    return f"{100 * share:.0f} % of the channels have the same limit ({BOUND_LABELS[bound]}). {_ADVICE[bound]}"
