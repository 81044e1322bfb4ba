"""The XMPP connection: it turns incoming stanzas into events, and sends stanzas that are given as text.

The rest of the bot uses :mod:`~bots.xmpp.events` and :mod:`~bots.xmpp.interface`; :mod:`~bots.xmpp.connection`
implements them. This package is the only importer of slixmpp, which logs in, parses, and implements stream management
(XEP-0198).

Extensions are parsed and written as XML in this package instead of by slixmpp's plugins, for these reasons:

- the plugins of XEP-0045 and XEP-0050 keep occupants and sessions without a limit;
- the plugin of XEP-0313 takes an error for the end of the archive;
- the plugin of XEP-0363 uploads without the guarded HTTP client;
- each pending request of a plugin is one more handler that is tried on every incoming stanza.

For XEP-0004, 0050, 0060 and the extensions of messages, slixmpp's stanza classes would suffice, but would not make this
code shorter.
"""
