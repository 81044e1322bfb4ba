"""Exchange between workers: of channels' contents, found by attenuated Bloom filters, and of messages between nodes.

A *content* (:mod:`service.location.content_cache`) is the baseline with which polls compare a document, and the latest
entries. It is identified by its digest, which the channel's owner and the store provide. A worker searches for a
content in its own cache, at other workers along the filters, at the channel's owner, in the store, and last at the
publisher. Workers do not trust each other's contents: the digest is checked, and after every failure the store is read.

- ``baseline_lookup``: the contents that this worker has, and the order of the search for others
- ``peer_content_search``: the search at other workers along filters, and the request to the owner
- ``neighbour_overlay``: the selection of neighbours, and the attenuated filters exchanged with them
- ``peer_stream``: ordered messages between two neighbours
- ``node_message_transport``: messages of the polling protocol to nodes of other workers, directly or through inboxes
- ``peer_endpoint``: all of these, and the endpoint for other workers, whose requests are signed with the cluster's
  secret, accepted once and for a limited time, and bounded in size

:mod:`service.location` decides; this package does the I/O. A fleet of one worker opens no connection.
"""
