"""Users' sessions with the bot: text chats and ad-hoc commands (XEP-0050), with access control and rate limits."""
