"""Chat: text to commands, commands to replies, and the durable outbox to recipients.

``dialogue`` is the one core behind every surface; it and ``commands`` and ``replies`` know
nothing of XMPP. ``xmpp`` is the only importer of slixmpp. ``bots`` never imports ``workers``.
"""
