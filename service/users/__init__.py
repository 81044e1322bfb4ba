"""People's preferences, and the hours at which they want messages. Pure."""
