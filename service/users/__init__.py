"""Users' settings, preferences for each subscription, filters, quiet hours and digests."""
