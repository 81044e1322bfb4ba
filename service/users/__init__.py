"""Users' preferences for each subscription, and the times at which they want to receive messages."""
