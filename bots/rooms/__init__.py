"""Group chats (XEP-0045): the rooms that the bot has joined, and the messages to the bot in them."""
