"""The XMPP connection: turns incoming stanzas into events, and sends stanzas that are given as text.

The rest of the bot uses :mod:`~bots.xmpp.events` and :mod:`~bots.xmpp.interface`; :mod:`~bots.xmpp.connection`
implements them. This is the only package that imports slixmpp, which logs in, parses the XML stream, and implements
stream management (XEP-0198).

This package parses and writes XMPP extensions itself instead of using slixmpp's plugins, for these reasons:

- the plugins for XEP-0045 and XEP-0050 store an unlimited number of occupants and sessions;
- the plugin for XEP-0313 mistakes an error for the end of the archive;
- the plugin for XEP-0363 uploads files without the guarded HTTP client;
- each pending request of a plugin adds a handler that is tried on every incoming stanza.

For XEP-0004, XEP-0050, XEP-0060 and the extensions of messages, slixmpp's stanza classes could be used, but would not
make this code shorter.
"""
