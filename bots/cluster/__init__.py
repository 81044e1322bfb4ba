"""The partitions of users, which several bot processes share."""
