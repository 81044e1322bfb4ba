"""Resources of people: their records and limits, dry runs of their commands, and blocked XMPP domains."""
