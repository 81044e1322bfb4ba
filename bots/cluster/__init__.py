"""Several bot processes that share the users: their partitions, leases, and the takeover of failed processes."""
