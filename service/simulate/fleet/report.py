"""The table of the experiment ``fleet``."""

from rich.table import Table

from service.simulate.fleet.experiment import FleetForecast
from service.simulate.report import terminal_table

_KILO, _MEGA = 1e3, 1e6


def table(forecast: FleetForecast) -> Table:
    """Return a forecast as a table for the terminal."""
    setup, rest = forecast.setup, forecast.at_rest
    rows = [
        ("messages a second and node", f"{rest.messages_per_node_s:.2f}", f"{forecast.messages_per_node_s:.2f}"),
        (
            "kB a second and node",
            f"{rest.bytes_per_node_s / _KILO:.1f}",
            f"{forecast.bytes_per_node_s / _KILO:.1f}",
        ),
        ("Redis commands a second", f"{rest.redis_commands_per_s:,.0f}", f"{forecast.redis_commands_per_s:,.0f}"),
        (
            "Redis MB a second",
            f"{rest.redis_bytes_per_s / _MEGA:.2f}",
            f"{forecast.redis_bytes_per_s / _MEGA:.2f}",
        ),
        ("MB of memory a node", f"{forecast.memory_per_node_bytes / _MEGA:.0f}", ""),
        ("seconds until polling sets are whole: one node dies", _seconds(forecast.heal_s), ""),
        ("seconds until polling sets are whole: half of the nodes die", _seconds(forecast.heal_half_s), ""),
    ]
    caption = (
        f"{setup.nodes:,} nodes, {setup.channels:,} channels, beyond polls. Simulated: "
        f"{forecast.simulated_nodes:,} nodes and {forecast.simulated_channels:,} channels of one section of the ring; "
        f"the fleet has {forecast.scaled_by} times as many."
    )
    return terminal_table(("", "at rest", "with churn and updates"), rows, caption)


def _seconds(duration_s: float | None) -> str:
    return "more than 120" if duration_s is None else f"{duration_s:.1f}"
