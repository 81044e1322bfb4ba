"""Client of Redis: connections, cluster routing, command batching, key names, and the identity of the store."""
