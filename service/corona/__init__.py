"""Cooperative polling (Corona): how often each channel is polled, and by which nodes.

The n nodes whose ids are nearest to a channel's id poll the channel in turn, every τ seconds each. They share the
updates that they find, so that an update is detected after τ/(2n) on average (Corona §3.1). The package is pure: events
in, effects out, and the time is an argument. It imports no store, clock or event loop; ``workers.node`` drives it.

How n is chosen: the numbers n of all channels are the solution of one optimisation problem (Honeycomb, §3.2). It
minimises Σ weight/n at bounded load, or the load at bounded delay.

- A channel's ``weight`` is its importance. It follows from the number of its subscribers and from the optimisation
  goal.
- Its ``cost`` is the load that one of its polls causes.
- ``least`` and ``most`` are the minimum and the maximum of n.
- The solution is n = clip(c·√(weight/cost), least, most) with one number c, the *scale*. The fleet has to agree on c.

Modules:

- ``fleet_policy``      the optimisation goals and the constraints, as admins set them
- ``optimizer``         the package that computes c and n, and explains the results
- ``aggregation``       the exchange of nodes' summaries of their channels, in which each channel counts exactly once
- ``site_budgets``      the exchange that keeps all channels of one site within the site's request budget
- ``weekly_rhythm``     the hours of the week at which a channel publishes, and a clock by which its polls follow them
- ``update_rates``      the update interval of a channel, estimated from its polls
- ``polling_limits``    the limits that a publisher, or failed polls, set for a channel's polls
- ``polling_schedule``  when the nodes that share a channel poll it, and how n changes without a skipped poll
- ``fleet_scale``       one node's solution for the scale c
- ``polling_plans``     the channels of a node with their inputs, the scale and the resulting schedules
- ``plan_table``        the numbers of these plans, as arrays
- ``assignment_digests``  hashes by which nodes confirm that they agree who polls what
- ``channel_owner``     the *owner* of channels (the nearest node): assigns polls to nodes and stores versions
- ``polling_set_member`` a node that polls channels as assigned, and sends the changes that it finds to owners
- ``node_protocol``     both roles of one node together
- ``events``, ``messages``  inputs and outputs of a node, and the messages between nodes

What is lost in a failure is sent again: owners confirm their assignments each maintenance interval, and assignments
that are not confirmed are dropped. What must survive is in the store. Writes of former owners are refused there,
because each change of ownership has a new number, the epoch (docs/guarantees.md).

Deviations from the paper:

- A changed c is applied at once, not in the next maintenance phase (§3.3). This saves a round.
- Polls are evenly spaced, not preceded by a random wait (§3.3). This halves the mean detection time.
- The owner assigns all polls itself, not level by level along the graph of nodes (DAG), because every node knows the
  whole ring.
"""
