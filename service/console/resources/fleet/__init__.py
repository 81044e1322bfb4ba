"""Resources of the fleet: overview, nodes, policy, key groups, directory, and the page About."""
