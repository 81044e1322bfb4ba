"""The XMPP bot: it answers the commands of users and delivers new entries to them.

A received message passes through five packages. ``inbound`` stores it. ``sessions`` queues it, so that each user's
commands are executed one at a time. ``commands`` parses it, ``dialogue`` executes the command, and ``replies`` provides
the texts of the reply. New entries wait in the users' outboxes, from which ``delivery`` sends them. These packages use
XMPP only through :mod:`bots.xmpp`, the only package that imports slixmpp. ``bots`` never imports ``workers``.
"""
