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

``trace``, ``polling`` and ``figures`` are publishers, polls and how long people waited; ``peers`` are other projects'
schedulers, ``ours`` is Corona's, and ``rhythm`` an addition to it; ``schedulers`` compares them.

``workload`` is Corona §5's world; ``fleet`` runs its nodes, whose ``owners`` decide and write into ``rotas``;
``paper_bins`` is the paper's own way to sum up, ``wire`` the network. ``timetable``, ``phases``, ``members`` and
``nearest`` tell all polls by arithmetic, ``calm`` and ``restless`` those that were really made; ``measures`` finds
updates by them; ``corona`` puts it together.

``clash_workload`` is CLASH §VI's world; ``clash_servers`` its servers on production's tables and policy,
``clash_lookups`` its clients, ``clash_dht`` what it is compared with; ``clash`` puts it together.

``discovery_workload`` is content discovery §V's world, ``discovery_nodes`` its nodes; ``discovery_matrices`` grow by
production's rules, ``discovery_registrations`` and ``discovery_queries`` are sent; ``discovery`` puts it together.

``location_graph`` is §III's network and ``location_overlay`` who is linked in it; ``location_net`` runs production's
nodes there, ``location_tapestry`` is what they fall back on, ``location_trace`` what is read; ``location_static`` and
``location_dynamic`` measure, ``location`` puts it together.
"""
