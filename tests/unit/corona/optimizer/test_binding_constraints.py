"""The constraints of many channels are those that the explanation of each one names."""

from collections import Counter
from math import inf

from hypothesis import given
from hypothesis import strategies as st

from service.corona.fleet_policy import FleetObjective, FleetPolicy, Goal, Levels
from service.corona.optimizer.node_optimizer import (
    POLL_COST,
    ChannelFactors,
    channel_weight,
    count_by_constraint,
    factor_table,
    limits_with_site,
)
from service.corona.optimizer.poll_explanation import explain_polling
from service.corona.optimizer.polling_levels import RingLevels
from service.corona.polling_limits import NO_LIMITS, LimitReason
from service.corona.polling_schedule import PollingSchedule
from service.model import NodeInfo
from service.overlay.id_space import BITS, to_hex
from service.overlay.ring import RingView

CHANNELS = st.lists(
    st.builds(
        ChannelFactors,
        subscribers=st.integers(0, 5_000),
        update_interval_s=st.sampled_from([60.0, 3_600.0, 1e6]),
        private=st.booleans(),
        site_scale=st.sampled_from([inf, -0.5, 0.01, 1.0]),
        longest_wait_s=st.sampled_from([0.0, 30.0, 10_000.0]),
        shortest_interval_s=st.sampled_from([0.0, 100.0, 86_400.0]),
        publisher_interval_s=st.sampled_from([0.0, 100.0, 3_600.0]),
        weight_factor=st.sampled_from([0.5, 1.0]),
        present_speed=st.sampled_from([1.0, 2.0]),
    ),
    max_size=20,
)


@given(
    CHANNELS,
    st.sampled_from([(goal, levels) for goal in Goal for levels in Levels]),
    st.integers(1, 50),
    st.floats(-1, 1) | st.floats(0, 1e3),
    st.data(),
)
def test_each_channel_counts_under_the_constraint_of_its_explanation(
    channels: list[ChannelFactors], aims: tuple[Goal, Levels], nodes: int, scale: float, data: st.DataObject
) -> None:
    goal, levels = aims
    policy = FleetPolicy(
        900.0, 120.0, 10.0, FleetObjective(goal), polls_per_hour_for_one_subscriber=4.0, most_polls_per_node=4.0
    )
    ring = RingView(1, tuple(NodeInfo(to_hex(number * (1 << BITS) // nodes), 1, "", 0.0) for number in range(nodes)))
    ids = [data.draw(st.integers(0, (1 << BITS) - 1).map(to_hex)) for _ in channels]
    reasons = [data.draw(st.sampled_from(LimitReason)) for _ in channels]
    wedges = RingLevels(ring, levels.base) if levels.are_whole else None
    expected = Counter(
        explain_polling(
            channel,
            weight=channel_weight(policy, factors),
            cost=POLL_COST,
            scale=scale,
            limits=limits_with_site(policy, nodes, factors),
            poll_interval_s=policy.poll_interval_s,
            update_interval_s=3_600.0,
            polling_set=ring.ids,
            schedule=PollingSchedule(0.0, 900.0, 1),
            now_s=0.0,
            polling_limits=NO_LIMITS.with_limit(reason, 1, 1),
            choices=wedges.choices([channel]) if wedges else None,
        ).bound
        for channel, factors, reason in zip(ids, channels, reasons, strict=True)
    )
    table, choices = factor_table(channels, len(channels)), wedges.choices(ids) if wedges and ids else None
    assert count_by_constraint(policy, nodes, table, scale, choices, reason=reasons.__getitem__) == expected
