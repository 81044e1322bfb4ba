"""Simulated time around production rooms: what the papers claim, what other readers do, and what ours does.

A pure room: no clock, network or environment, and all randomness comes from one numpy generator, made from the seed.
The same seed gives the same JSON. Only its edge touches the world: ``cli`` and ``report``.

- An experiment drives the production rooms, never a re-implementation of them. What it compares them with (a paper's
  own way, another project's formula) lives here, with its source beside it.
- Nothing that decides in an experiment sees the future, or what a real node could not know.
- An experiment is a module named like its command in ``cli``: a function from a scale and a seed to a msgspec value,
  which is its JSON. ``…_report`` turns that value into a table, a plot and a page of ``docs/experiments``, by what
  ``report`` has for all of them; words, tables and verdicts of a page are in ``templates``.
- A figure that falls short of its target is written down as it is, with the reason.

``schedulers``: ``trace`` is publishers, ``polling`` polls and how long people waited; ``peers`` are other projects'
schedulers, ``ours`` is Corona's.

``corona``: ``workload`` is Corona §5's world; ``fleet`` runs its nodes, whose owners write into ``timetable``;
``paper_levels`` is the paper's own way to sum up, and ``fleet_polls`` are the polls that come of it.

``clash``: ``clash_servers`` is CLASH §VI's world, with servers on production's tables and policy.

``discovery``: ``discovery_matrices`` is content discovery §V's world, with matrices that grow by production's rules;
``discovery_queries`` are registrations and queries that are sent.

``partial_lookup``: ``partial_lookup_static`` are placements, ``partial_lookup_updates`` adds and deletes.

``location``: ``location_graph`` is §III's network and who is linked in it; ``location_net`` runs production's nodes
there, and has what they fall back on; ``location_static`` and ``location_dynamic`` measure.
"""
