"""Delivery: reads people's outboxes, decides what is sent when, and writes the messages."""
