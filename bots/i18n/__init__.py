"""Internationalisation: the languages of the bot, and the catalogs of their sentences."""
