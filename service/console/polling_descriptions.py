"""Texts that explain polling to people: schedules, publishers' hints, and the constraints and bounds on poll rates."""

from calendar import day_name
from collections.abc import Iterator, Sequence

from service.console.formatting import count, duration, format_duration
from service.corona.fleet_policy import ChannelBounds
from service.corona.optimizer.poll_explanation import BindingConstraint, PollExplanation
from service.feeds.publisher_polling_hints import DAY_S
from service.model import PollingHints
from service.operations.poll_constraints import BOUND_LABELS


def describe_polling_hints(hints: PollingHints) -> str:
    """Describe the polling hints in a publisher's feed and its HTTP response; return "" if there are none."""
    parts = []
    intervals_s = [
        interval_s for interval_s in (hints.ttl_s, hints.update_period_s, hints.max_age_s) if interval_s is not None
    ]
    accepted_s = [interval_s for interval_s in intervals_s if interval_s <= DAY_S]
    if accepted_s:
        parts.append(f"at most every {duration(max(accepted_s))}")
    elif intervals_s:
        parts.append(f"at most every {duration(max(intervals_s))} (ignored: more than a day)")
    if hints.skip_hours:
        parts.append(f"not from {' and '.join(_hour_ranges(hints.skip_hours))} UTC")
    if hints.skip_days:
        parts.append(f"not on {', '.join(day_name[day] for day in hints.skip_days)}")
    return "; ".join(parts)


def bound_label(bound: BindingConstraint) -> str:
    """Return the label for a constraint that determines a channel's poll rate."""
    return BOUND_LABELS[bound]


def describe_bound(reason: PollExplanation, now_s: float) -> str:
    """Describe the constraint that determines how often a channel is polled, as a sentence without a full stop.

    ``reason`` is the explanation of the channel's poll schedule. ``now_s`` is the current Unix time.
    """
    match reason.bound:
        case BindingConstraint.CHANNEL_BUDGET:
            return f"The limit for a public channel with {count(reason.subscribers, 'subscriber')}"
        case BindingConstraint.PUBLISHER:
            return f"The publisher, which asks for at least {duration(reason.publisher_interval_s)} between polls"
        case BindingConstraint.FAILURE:
            return f"Failures: at least {duration(reason.publisher_interval_s)} between polls until one succeeds"
        case BindingConstraint.PAUSE:
            return f"A pause for another {duration(max(0.0, reason.paused_until_s - now_s))}"
        case bound:
            label = BOUND_LABELS[bound]
            return label[0].upper() + label[1:]


def describe_bounds(bounds: ChannelBounds) -> str:
    """Describe in one line a channel's own bounds on its poll rate; return "policy only" if there are none."""
    parts = []
    if bounds.longest_wait_s is not None:
        parts.append(f"mean delay at most {format_duration(bounds.longest_wait_s)}")
    if bounds.shortest_interval_s is not None:
        parts.append(f"at least {format_duration(bounds.shortest_interval_s)} between polls")
    return ", ".join(parts) or "policy only"


def level(value: float) -> str:
    """Format a polling level with at most one decimal place: ``2``, ``1.6``."""
    return f"{value:.1f}".removesuffix(".0")


def describe_schedule(reason: PollExplanation) -> str:
    """Describe a channel's polling level, number of nodes, and poll interval, as a sentence without a full stop.

    ``reason`` is the explanation of the channel's poll schedule.
    """
    nodes = f"{reason.nodes:,} of {count(reason.ring_nodes, 'node')}"
    turns = "polls it" if reason.nodes == 1 else "poll it in turn"
    return (
        f"Level {level(reason.level)} of {reason.highest_level}: {nodes} {turns}, every {duration(reason.gap_s)}; "
        f"a change is noticed after {duration(reason.wait_s)} on average"
    )


def _hour_ranges(hours: Sequence[int]) -> Iterator[str]:
    """Yield the time ranges that a sorted list of hours covers: the hours 0, 1 and 2 become ``0:00 to 3:00``."""
    starts = [hour for hour in hours if hour - 1 not in hours]
    ends = [hour + 1 for hour in hours if hour + 1 not in hours]
    return (f"{start}:00 to {end}:00" for start, end in zip(starts, ends, strict=True))
