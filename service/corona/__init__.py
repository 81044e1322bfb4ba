"""Cooperative polling (Corona): how often each channel is polled, and by which nodes.

A channel is polled by the n nodes whose ids are nearest to the channel's id. They take turns, and each node polls the
channel once every τ seconds. A node that finds an update shares it with the others, so an update is detected after
τ/(2n) on average (Corona §3.1).

The package does no input or output: it receives events, returns effects, and is given the time as an argument. It
imports no store, clock or event loop; ``workers.node`` drives it.

The values of n for all channels are the solution of one optimisation problem (Honeycomb, §3.2). Depending on the
optimisation goal, one of two quantities is minimised while the other stays within a limit: the weighted sum of delays,
Σ weight/n, or the load.

- A channel's ``weight`` is its importance. It depends on the channel's subscribers and on the optimisation goal.
- A channel's ``cost`` is the load that one poll of the channel causes.
- ``least`` and ``most`` are the minimum and the maximum of n.
- The solution is n = clip(c·√(weight/cost), least, most). The factor c, the *scale*, is the same for all channels, so
  all nodes of the fleet have to agree on it.

Modules:

- ``fleet_policy``      the optimisation goals and the constraints, as admins set them
- ``optimizer``         the package that computes c and n, and explains the results
- ``aggregation``       how nodes exchange summaries of their channels so that each channel counts exactly once
- ``site_budgets``      how nodes keep the polls of one site's channels within the site's request budget
- ``weekly_rhythm``     the hours of the week in which a channel publishes, and how its polls follow them
- ``update_rates``      the update interval of a channel, estimated from its polls
- ``polling_limits``    the limits that a publisher, or failed polls, set for a channel's polls
- ``polling_schedule``  when the nodes that share a channel poll it, and how n changes without skipping a poll
- ``fleet_scale``       one node's computation of the scale c
- ``polling_plans``     the channels of a node, with their inputs, the scale and the resulting schedules
- ``plan_table``        the numeric data of the polling plans, as arrays
- ``assignment_digests``  hashes with which nodes check that they agree on which node polls which channel
- ``channel_owner``     the *owner* of channels (the nearest node): assigns polls to nodes and stores versions
- ``polling_set_member`` a node that polls channels as assigned, and sends the changes that it finds to owners
- ``node_protocol``     both roles of one node together
- ``events``, ``messages``  inputs and outputs of a node, and the messages between nodes

Lost messages are made up for: once per maintenance interval, each owner confirms its assignments, and nodes drop
assignments that their owner does not confirm. Data that must survive a failure is in the store. Each change of a
channel's ownership gets a new sequence number, the epoch. With it, the store recognises and refuses the writes of
former owners (docs/guarantees.md).

Deviations from the paper:

- A new scale c is applied at once, not in the next maintenance phase (§3.3).
- Polls are evenly spaced, not preceded by a random wait (§3.3). This shortens the mean detection time from τ/(n+1) to
  τ/(2n).
- The owner assigns all polls itself, because every node knows the whole ring. In the paper, assignments pass from node
  to node, level by level.
"""
