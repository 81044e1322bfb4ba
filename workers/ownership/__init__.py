"""The owner of a channel: its versions, their fan-out, and its names in the directory."""
