"""Internationalisation: the languages of the bot, and the catalogs with its translated sentences."""
