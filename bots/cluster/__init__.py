"""How several bot processes share the users: partitions, leases, and taking over from failed processes."""
