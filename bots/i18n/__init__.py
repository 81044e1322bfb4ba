"""Internationalisation: the bot's languages, and the catalogs that contain the translations of its sentences."""
