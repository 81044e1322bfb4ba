"""Pages and API operations about people: records, limits, invitations, dry runs of commands, blocked XMPP domains."""
