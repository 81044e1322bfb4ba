"""Cooperative polling (Corona): how often each channel is polled, by which nodes, and the protocol that decides it.

A pure package: events in, effects out, and the time is an argument. It imports no store, clock or event loop;
``workers.node`` drives it.

The n nodes nearest to a channel's id poll the channel every τ seconds each, evenly spaced, and share the updates that
they find, so that an update is detected after τ/(2n) on average (Corona §3.1). The numbers n of all channels are the
solution of one optimisation problem (Honeycomb, §3.2): minimise Σ weight/n at bounded load, or the load at bounded
delay. A channel's weight, its importance, follows from the number of its subscribers and from the optimisation goal.
Its cost is the load that one of its polls causes. Its bounds ``least`` and ``most`` are the minimum and the maximum of
n. The solution is n = clip(c·√(weight/cost), least, most) with one number c, the *scale*, on which the fleet has to
agree.

- ``fleet_policy``      the optimisation goals and the constraints, as admins set them
- ``optimizer``         the package that computes c and n, and explains the results
- ``aggregation``       the exchange of nodes' summaries of their channels, in which each channel counts exactly once
- ``site_budgets``      the exchange that keeps all channels of one site within the site's request budget
- ``weekly_rhythm``     the hours of the week at which a channel publishes, and a clock by which its polls follow them
- ``update_rates``      the update interval of a channel, estimated from its polls
- ``polling_limits``    the limits that a publisher, or failed polls, set for a channel's polls
- ``polling_schedule``  when the nodes of a polling set poll, and how n changes without a skipped poll
- ``fleet_scale``       one node's solution for the scale c
- ``polling_plans``     an owner's channels with their inputs, the scale and the resulting schedules
- ``plan_table``        the numbers of these plans, as arrays
- ``assignment_digests``  digests by which owners and members confirm that they agree
- ``channel_owner``     the owner of channels: assigns polling sets and stores versions
- ``polling_set_member`` a member of polling sets: polls as assigned and sends candidates (the changes that its polls
  find) to owners
- ``node_protocol``     owner and member of one node together
- ``events``, ``messages``  inputs and outputs of a node, and the messages between nodes

State is soft: owners confirm their assignments by a digest each maintenance interval, members drop assignments that are
not confirmed, and what must survive is in the store, fenced by the owner's epoch (see docs/guarantees.md). In each tick
a node sends summaries of its channels and solves for c from those it has received.

Deviations from the paper: a changed c is applied at once instead of in the next maintenance phase (§3.3), which saves a
round; polls are spaced by rank instead of by a random wait (§3.3), which halves the mean detection time; and the owner
assigns all members itself instead of level by level along the DAG, because every node knows the whole ring.
"""
