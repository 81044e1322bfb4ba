"""What people are to be sent, and what they sent: outboxes, the inbound log and dry runs."""
