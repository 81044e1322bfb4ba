"""Experiments in simulated time with production code: the papers' simulations, and other feed readers' schedulers.

This is a pure package: it uses no clock, network or environment. All random numbers come from a numpy generator that is
created from a seed, so that the same seed gives the same JSON. Only the modules ``cli`` and ``report`` do I/O.

- An experiment runs production packages, not a re-implementation. Algorithms for comparison (a paper's own, or another
  project's formula) are in this package, with their source.
- No decision in an experiment uses the future or anything that a real node cannot know.
- Each experiment is a package, which has the name of its command in ``cli``. The function ``run`` in its module
  ``experiment`` returns a msgspec value, which the command prints as JSON. Its module ``report`` converts this value to
  a table for the terminal, to plots, and to a page of ``docs/experiments``. The texts and tables of pages, and the
  comparisons with the papers, are in ``templates``.
- A result that misses its target is reported as it is, with the reason.

Packages:

- ``schedulers`` compares Corona's scheduler with those of other feed readers. ``publication_trace`` draws publications,
  and ``polls`` simulates polls. The schedulers are in ``reader_schedulers`` and ``corona_scheduler``.
- ``corona`` repeats the simulations of Corona §5. ``workload`` draws nodes and channels. ``fleet`` simulates nodes,
  whose polling schedules form a ``timetable``, and ``fleet_polls`` computes the polls. ``paper_levels`` has those
  algorithms of the paper from which production deviates. ``protocol_fleet`` simulates nodes that run the production
  protocol.
- ``clash`` repeats the simulations of CLASH §VI. ``servers`` simulates traffic, and servers with production's tables
  and policy.
- ``discovery`` repeats the simulations of content discovery §V. ``matrices`` has the workload, and matrices that grow
  by production's rules. ``queries`` simulates registrations and queries.
- ``partial_lookup`` repeats the simulations of partial lookup §4 and §6. ``placement_experiment`` measures how entries
  are placed on servers, and ``update_experiment`` measures the effects of adding and deleting entries.
- ``location`` repeats the simulations of attenuated Bloom filters §III. ``graph`` draws networks and overlays, and
  ``network`` simulates production's nodes and Tapestry. ``static_experiment`` and ``dynamic_experiment`` measure.
- ``fleet`` forecasts the cost of a fleet's control plane. ``section_fleet`` simulates a section of the ring.

Common modules: ``corona.workload`` draws the update intervals and popularity of channels, ``numerics`` has types and
functions for arrays, and ``report`` has functions for tables, plots and pages.
"""
