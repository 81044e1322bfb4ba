"""HOW OFTEN and by whom each channel is polled, and the conversation that keeps it so.

A pure room: events in, effects out; the time is an argument. ``workers.node`` drives it.

Cooperative polling (Corona §3): the n nodes nearest to a channel poll it every τ seconds each,
evenly spaced, and share what they find, so that news is seen after τ/(2n) on average.

How many polls a channel is worth, n per τ, is one optimisation over all channels (Honeycomb, §3.2):
Σ weight/n at bounded load, or the least load at a bounded delay. Its solution is
n = clip(c·√(weight/cost), least, most) with one number c, on which the fleet has to agree.

- ``goals``       what is wanted, as one weight per channel (Table 1), and the model of delay
- ``honeycomb``   c and the sizes n, real numbers; what a site's channels may be polled together, as bounds of each
- ``clusters``    a node's channels in 20 kB: c from summaries of all nodes
- ``aggregation``  how those summaries reach every node, each channel counted once
- ``estimates``   how often a channel is updated, learnt from its polls
- ``reasons``     why a channel is polled as it is

- ``optimum``   one node's channels as a problem, and c from everybody's, under the fleet's policy
- ``pacing``    what an owner knows of its channels, and the rotas that follow
- ``schedule``  when the nodes of a polling set poll, and how n may change
- ``site_budgets``  how the owners of a site's channels learn what the site may be asked for all
- ``owner``     a channel's owner: names the polling set, versions what its members find
- ``member``    a polling set's member: polls while told to, keeps what it found until versioned
- ``protocol``  both halves of one node
- ``policy``    what the fleet is to achieve, and at what cost
- ``events``, ``messages``  what goes in and out, and what travels between nodes

State is soft: owners repeat every assignment each maintenance interval, members forget what is
not repeated, and whatever must survive lives in the store, fenced by the owner's epoch.
Every tick a node tells others what its channels weigh, and solves for c from what they tell.
We deviate: where c has moved, it is applied at once, not only in the maintenance phase (§3.3), which
spares a round; polls are spaced by rank instead of by a random wait (§3.3), which halves the mean
detection time; and the owner names all members itself instead of level by level along the DAG,
because every node knows the whole ring.
"""
