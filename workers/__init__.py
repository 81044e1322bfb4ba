"""Polling nodes: they drive ``service.corona.protocol``, reach publishers, and fan deltas out.

``node`` is the only importer of apscheduler. ``workers`` never imports ``bots``.
"""
