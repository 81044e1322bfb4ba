"""Exchange between workers: of copies of channels' contents, and of messages between nodes.

A channel is a feed or page. Its *content* is its latest entries, and the state that the next document is compared with
(:mod:`service.location.content_cache`). The *digest* is the hash of a content. A worker gets the digest from the
channel's owner or the store, and compares it with each content that another worker sends. So workers need not trust
each other.

A worker searches for a content in this order: its own cache, other workers, the channel's owner, the store, the
publisher. Attenuated Bloom filters show which contents can be found near which worker.

- ``baseline_lookup``: the cache, and the order of the search
- ``peer_content_search``: the search at other workers and at the owner
- ``neighbour_overlay``: the selection of neighbours, and the exchange of filters with them
- ``peer_stream``: ordered messages between two neighbours
- ``node_message_transport``: messages of the polling protocol between nodes, directly or through inboxes in Redis
- ``peer_endpoint``: the HTTP endpoint for other workers

:mod:`service.location` decides; this package does the I/O. A fleet of one worker opens no connection.
"""

# Requests are signed with the cluster's secret, accepted once and for a limited time, and bounded in size. The digest
# of a received content is checked, and after every failure the store is read.
