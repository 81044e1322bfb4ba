"""What a key group weighs: one formula, in deliveries per second."""

SUBSCRIPTIONS_PER_DELIVERY_S = 1000.0
"""So many subscriptions that nobody is told anything weigh as much as one delivery a second."""


def group_load(deliveries_per_s: float, subscriptions: float) -> float:
    """Return the load of a group, in deliveries per second.

    Fan-out reads each subscription once per delta, so work is linear in deliveries. Storage is a second, smaller
    term, which keeps large groups apart that are quiet at present. We deviate: the paper's load is logarithmic in the
    number of stored queries (§VI.A), because its servers match data against an index of them; ours walk all.
    """
    return deliveries_per_s + subscriptions / SUBSCRIPTIONS_PER_DELIVERY_S
