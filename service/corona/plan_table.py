"""The numeric data from which one node plans the polls of its channels, as arrays.

A node has tens of thousands of channels. When all polling rates change, array operations find the channels that need a
new schedule. Schedules are then computed one by one, for these channels only.
"""

from math import inf

import numpy as np
from numpy.typing import NDArray

from service.corona.optimizer.node_allocation import FACTORS_ROW, FactorTable
from service.model import ChannelId

_FIRST_ROWS = 64
_GROWTH = 8
"""A full table grows by one row for each so many rows."""

_PLAN_ROW = np.dtype(
    [
        *FACTORS_ROW.descr,
        ("planned_interval_s", "<f8"),
        *(("site", "<u4"), ("paused_until_s", "<f8")),
        *(("rate", "<f8"), ("set_size", "<u4")),
        *(("gap_s", "<f8"), ("size", "<u4"), ("slowest", "<f4"), ("fastest", "<f4")),
        ("recorded_gap_s", "<f8"),
        *(("site_limit", "<f8"), ("next_site_limit", "<f8")),
    ]
)


class PlanTable:
    """A table with one row for each channel of a node.

    The fields of :class:`~service.corona.optimizer.node_allocation.ChannelFactors` are columns. The other
    columns:

    - ``planned_interval_s``: like ``publisher_interval_s``, but a pause counts as at most the poll interval τ.
    - ``site``: the index of the channel's site in ``sites``.
    - ``paused_until_s``: the end of the channel's pause (Unix time by the store's clock); 0 for none.
    - ``rate``: how many polls per τ the channel should have at present.
    - ``set_size``: how many nodes should make these polls.
    - ``gap_s``: the mean time in seconds between polls in the channel's schedule; 0 if it has no schedule.
    - ``size``: the number of nodes in the channel's schedule; 0 if it has no schedule.
    - ``slowest``, ``fastest``: the lowest and the highest polling rate in any hour of the week, as multiples of
      the mean rate. Without a weekly rhythm, they are infinity and 0, which satisfies all limits.
    - ``recorded_gap_s``: the time between polls that was last recorded in the channel's history; 0 for none.
    - ``site_limit``: the maximum of the channel's polls per τ, if its site's budget limits them; infinity otherwise. It
      falls at once, but rises only after a maintenance interval (``PollingPlans._raise_site_limits``).
    - ``next_site_limit``: the lowest value since the last maintenance that ``site_limit`` would have without this
      delay.
    """

    def __init__(self) -> None:
        self._rows: FactorTable = np.zeros(_FIRST_ROWS, dtype=_PLAN_ROW)
        self.channels: list[ChannelId] = []
        """The channel of each row."""
        self.sites: dict[str, int] = {"": 0}
        """The index of each site, including sites whose channels have been removed. Channels without a site have 0."""

    @property
    def rows(self) -> FactorTable:
        """The rows of all channels, as a view of the table: writing to it changes the table.

        The view becomes invalid when a channel is added or removed.
        """
        return self._rows[: len(self.channels)]

    def add(self, channel: ChannelId, site: str) -> int:
        """Append a row for a channel, and return the row's index.

        Its site limits are infinite. All other columns except for the site are zero.
        """
        row = len(self.channels)
        if row == len(self._rows):
            self._rows = np.concatenate((self._rows, np.zeros(max(_FIRST_ROWS, row // _GROWTH), dtype=_PLAN_ROW)))
        self._rows[row] = np.zeros((), dtype=_PLAN_ROW)
        self._rows[row]["site_limit"] = self._rows[row]["next_site_limit"] = inf
        self._rows[row]["site"] = self.sites.setdefault(site, len(self.sites))
        self.channels.append(channel)
        return row

    def remove(self, row: int) -> ChannelId | None:
        """Remove the row with the index ``row``, and fill the gap by moving the last row to this index.

        Return the channel of the moved row; None if the removed row was itself the last one.
        """
        last = self.channels.pop()
        if row == len(self.channels):
            return None
        self._rows[row] = self._rows[len(self.channels)]
        self.channels[row] = last
        return last

    def rows_of_site(self, site: str) -> NDArray[np.intp]:
        """Return the row indices of the channels of a site."""
        return np.flatnonzero(self.rows["site"] == self.sites.get(site, -1))
