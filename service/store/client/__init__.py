"""The client of Redis: connections, clusters, keys, and the identity of the store."""
