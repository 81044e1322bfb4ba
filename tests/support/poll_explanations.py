"""Explanations of the polls of a channel, as its owner returns them: each node of the polling set polls once per τ."""

from collections.abc import Sequence

from service.corona.optimizer.poll_explanation import BindingConstraint, PollExplanation, PollingTurn
from service.corona.optimizer.polling_levels import highest_level, level_of
from service.corona.polling_limits import NO_LIMITS, PollingLimits
from service.corona.polling_schedule import PollingSchedule
from service.model import ChannelId, NodeId


def explanation(
    channel: ChannelId,
    polling_set: Sequence[NodeId],
    first_s: float,
    interval_s: float,
    bound: BindingConstraint,
    *,
    now_s: float = 0.0,
    ring_nodes: int = 1,
    limits: PollingLimits = NO_LIMITS,
    subscribers: int = 1,
    update_interval_s: float = 7_200.0,
) -> PollExplanation:
    """Return why a channel is polled by these nodes in turn, by each every ``interval_s`` seconds from ``first_s`` on.

    ``bound`` is the constraint that limits the polls; ``BindingConstraint.NONE`` means only the channel's weight.
    """
    size = len(polling_set)
    schedule = PollingSchedule(first_s, interval_s / size, size)
    publisher_interval_s, reason = limits.shortest_interval(now_s)
    return PollExplanation(
        channel=channel,
        weight=4.0,
        cost=1.0,
        scale=size / 2 if bound is BindingConstraint.NONE else 9.0 * size,
        wanted=size if bound is BindingConstraint.NONE else 18.0 * size,
        least=0.0,
        most=99.0 if bound is BindingConstraint.NONE else size,
        size=size,
        bound=bound,
        wait_s=interval_s / (2 * size),
        update_interval_s=update_interval_s,
        interval_s=interval_s,
        turns=tuple(
            PollingTurn(node, rank, schedule.first_poll_s(rank) - first_s, schedule.next_poll_s(rank, now_s))
            for rank, node in enumerate(polling_set)
        ),
        level=level_of(size, ring_nodes, 2),
        highest_level=highest_level(ring_nodes, 2),
        nodes=size,
        ring_nodes=ring_nodes,
        publisher_interval_s=publisher_interval_s,
        limit_reason=reason,
        paused_until_s=float(limits.paused_until_s) if limits.paused_until_s > now_s else 0.0,
        subscribers=subscribers,
    )
