"""Simulations of the papers' experiments, and of other feed readers' schedulers, in simulated time.

The experiments run production code, not re-implementations. The package uses no clock, network or environment. All
random numbers come from a seed, so the same seed gives the same JSON. Only the modules ``cli`` and ``report`` do I/O.

Rules:

- Algorithms for comparison (a paper's own, or another project's formula) are in this package, and name their source.
- Every decision in an experiment uses only what a real node can know at that time.
- A result that misses its target is reported as it is, with the reason.

Each experiment is a package with the name of its command in ``cli``:

- The module ``experiment`` has the function ``run``. It returns a msgspec value, which the command prints as JSON.
- The module ``report`` converts this value to a terminal table, to plots, and to a page of ``docs/experiments``.
- The directory ``templates`` contains the texts and tables of pages, and the comparisons with the papers.

Experiments:

- ``schedulers`` compares Corona's scheduler with those of other feed readers.
- ``corona`` repeats the simulations of Corona §5.
- ``clash`` repeats the simulations of CLASH §VI.
- ``discovery`` repeats the simulations of content discovery §V and §VI.
- ``partial_lookup`` repeats the simulations of partial lookup §4 and §6.
- ``location`` repeats the simulations of attenuated Bloom filters §III and §IV.
- ``fleet`` forecasts the cost of a fleet's control plane.

Common modules:

- ``corona.workload`` draws the update intervals and the popularity of channels.
- ``numerics`` has types and functions for arrays.
- ``report`` has functions for tables, plots and pages.
"""
