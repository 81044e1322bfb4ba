"""The only importer of slixmpp, which logs in, parses, and speaks XEP-0198.

Extensions are read and written as XML by :mod:`bots.xmpp.message_parser`, :mod:`bots.xmpp.stanzas` and their
neighbours rather than by slixmpp's plugins. The plugins of XEP-0045 and 0050 keep occupants and sessions without a
bound; that of XEP-0313 takes an error for the end of an archive; that of XEP-0363 uploads past our guard; and every
open request of a plugin is a handler that is tried on each incoming request and answer. Where only their stanza
classes would do (XEP-0004, 0050, 0060, and the extensions of messages), our code does not become shorter with them.
"""
