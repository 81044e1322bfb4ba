"""State through which processes coordinate their work.

It consists of leases, messages and requests between processes, the fleet policy, and limits on requests to sites.
"""
