"""Internationalisation: the languages of the bot, and the catalogs with the translations of the bot's sentences."""
