"""The partitions of users, and how several bot processes share them."""
