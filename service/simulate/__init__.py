"""Experiments in simulated time with production code: the papers' simulations, and other feed readers' schedulers.

This is a pure package: it uses no clock, network or environment. All randomness comes from a numpy generator created
from the seed, so that the same seed gives the same JSON. Only ``cli`` and ``report`` do I/O.

- An experiment runs production packages, not a re-implementation. Algorithms for comparison (a paper's own, or another
  project's formula) are in this package, with their source.
- No decision in an experiment uses the future or anything that a real node cannot know.
- Every experiment is a package named like its command in ``cli``. Its module ``experiment`` has ``run``, which returns
  a msgspec value, its JSON. Its module ``report`` converts that value to a table, plots and a page of
  ``docs/experiments``, with the common functions in ``report``. The pages' texts and tables, and the comparisons with
  the papers, are in ``templates``.
- A result that misses its target is reported as it is, with the reason.

Packages:

- ``schedulers``: Corona's scheduler and those of other feed readers. ``publication_trace`` draws publications,
  ``polls`` simulates polls, ``reader_schedulers`` and ``corona_scheduler`` are the schedulers.
- ``corona``: Corona §5. ``workload`` draws nodes and channels, ``fleet`` simulates nodes, whose schedules form a
  ``timetable``; ``paper_levels`` has the paper's own clusters and levels, ``fleet_polls`` the resulting polls.
  ``protocol_fleet`` simulates nodes that run the production protocol.
- ``clash``: CLASH §VI. ``servers`` simulates traffic, and servers with production's tables and policy.
- ``discovery``: content discovery §V. ``matrices`` has the workload and matrices that grow by production's rules,
  ``queries`` the registrations and queries.
- ``partial_lookup``: ``placement_experiment`` measures placements, ``update_experiment`` adds and deletes.
- ``location``: attenuated Bloom filters §III. ``graph`` draws networks and overlays, ``network`` simulates production's
  nodes and Tapestry; ``static_experiment`` and ``dynamic_experiment`` measure.
- ``fleet``: a forecast of the cost of a fleet's control plane. ``section_fleet`` simulates a section of the ring.

Common modules: ``corona.workload`` draws the update intervals and popularity of channels, and ``numerics`` has types
and functions for arrays.
"""
