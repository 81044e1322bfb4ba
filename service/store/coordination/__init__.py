"""What processes share: leases, requests and answers, the fleet policy, and budgets of requests to publishers."""
