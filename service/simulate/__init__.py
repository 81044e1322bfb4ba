"""Simulated time around production rooms: what the papers claim, what other readers do, and what ours does.

A pure room: no clock, network or environment, and all randomness comes from one numpy generator, made from the seed.
The same seed gives the same JSON. Only its edge touches the world: ``cli``, and what a ``…_report`` writes.

- An experiment drives the production rooms, never a re-implementation of them. What it compares them with (a paper's
  own way, another project's formula) lives here, with its source beside it.
- Nothing that decides in an experiment sees the future, or what a real node could not know.
- An experiment is a module named like its command in ``cli``: a function from a seed and a scale to a msgspec value,
  which is its JSON. ``…_report`` turns that value into a table, a plot and a page of ``docs/experiments``.
- A figure that falls short of its target is written down as it is, with the reason.

``trace``, ``polling`` and ``figures`` are publishers, polls and how long people waited; ``peers`` are other projects'
schedulers, ``ours`` is Corona's, and ``rhythm`` an addition to it; ``schedulers`` compares them.
"""
