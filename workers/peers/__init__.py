"""Contents of channels travel from worker to worker; the nearest copy is found by attenuated Bloom filters.

What a poll compares with, and what people are shown, is a *content* (``service.location.content_cache``), named by its
digest, which the channel's owner and the store tell. It is looked for here, near by, at the owner, in the store, and
at last at the publisher. Workers are hints to each other: whatever they say is checked by the digest or harms only
speed, and every way of failing ends at the store.

- ``contents``   what this worker has, and the order in which it looks elsewhere
- ``finding``    the walk along filters, and the owner
- ``overlay``    whose neighbour we are, and what neighbours tell each other, in order
- ``main``       all of it, wired, and what others ask of us, checked: sealed with the cluster's secret, once, in time,
                 and not too large

``service.location`` decides; here is what waits. A fleet of one worker opens no connection and sends nothing.
"""
