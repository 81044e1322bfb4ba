"""State that processes share: leases, requests and replies, the fleet policy, and request budgets of publishers."""
