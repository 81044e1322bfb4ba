"""State that processes share: leases, requests between processes, the fleet policy, and request budgets of sites."""
