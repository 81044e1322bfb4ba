"""Group chats (XEP-0045): which rooms the bot is in, and what is said there."""
