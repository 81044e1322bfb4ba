"""Resources for the fleet: overview, nodes, policy, key groups, directory, and the About page."""
