"""Access to Redis: client, connections, routing in a cluster, key names, streams, and the guard against data loss."""
