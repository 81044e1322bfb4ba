"""The XMPP bot: it answers the commands of users and delivers new entries to them.

A received message goes through ``inbound`` (stored), ``sessions`` (one command at a time), ``commands`` (parsed),
``dialogue`` (executed) and ``replies`` (answered); ``delivery`` reads the users' outboxes. These packages use XMPP only
through :mod:`bots.xmpp`, the only importer of slixmpp. ``bots`` never imports ``workers``.
"""
