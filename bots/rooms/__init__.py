"""Group chats (XEP-0045): the rooms that the bot has joined, and the messages in them that address the bot."""
