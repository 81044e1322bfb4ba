"""HOW OFTEN and by whom each channel is polled, and the conversation that keeps it so.

A pure room: events in, effects out; the time is an argument. ``workers.node`` drives it.

Cooperative polling (Corona §3): the n nodes nearest to a channel poll it every τ seconds each,
evenly spaced, and share what they find, so that news is seen after τ/(2n) on average.

- ``schedule``  when a node of a polling set polls, and how politeness stretches τ
- ``owner``     a channel's owner: names the polling set, versions what its members find
- ``member``    a polling set's member: polls while told to, keeps what it found until versioned
- ``protocol``  both halves of one node behind one door
- ``policy``    what of the settings the protocol must know
- ``events``, ``messages``  what goes in and out, and what travels between nodes

State is soft: owners repeat every assignment each maintenance interval, members forget what is
not repeated, and whatever must survive lives in the store, fenced by the owner's epoch.
The size n comes from a setting. We deviate: polls are spaced by rank instead of by a random
wait (§3.3), which halves the mean detection time; and the owner names all members itself
instead of level by level along the DAG, because every node knows the whole ring.
"""
