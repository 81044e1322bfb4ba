"""Exchange between workers: copies of channels' contents, and messages between nodes.

The *content* of a channel (a feed or page) consists of its latest entries, and the state with which the next document
is compared (:mod:`service.location.content_cache`). The *digest* is the hash of the content. A worker learns the digest
from the channel's owner or the store, and uses it to check each copy that another worker sends. Workers therefore need
not trust each other.

A worker looks for the content of a channel in this order: its own cache, other workers, the channel's owner, the store,
the publisher. Attenuated Bloom filters show which contents can be found near which worker.

- ``baseline_lookup``: the cache, and the order of the search
- ``peer_content_search``: the search at other workers and at the owner
- ``neighbour_overlay``: the selection of neighbours, and the exchange of filters with them
- ``peer_stream``: ordered messages between two neighbours
- ``node_message_transport``: messages of the polling protocol between nodes, sent directly or through inboxes in Redis
- ``peer_endpoint``: the HTTP endpoint for other workers

:mod:`service.location` makes the decisions; this package does the I/O. If there is only one worker, it opens no
connections.
"""

# Requests are signed with the cluster's secret, accepted once and for a limited time, and bounded in size. The digest
# of a received content is checked, and after every failure the store is read.
