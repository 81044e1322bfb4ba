"""Polling nodes: they drive ``service.corona.protocol``, reach publishers, and fan deltas out.

``scheduling`` is the only importer of apscheduler. ``workers`` never imports ``bots``.
"""
