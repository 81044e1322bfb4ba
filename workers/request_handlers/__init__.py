"""Requests that bots and the console send to workers, for example to poll a channel (a feed or page) at once.

- ``request_dispatcher``: passes each request to its handler, and sends the reply
- ``new_url_resolver``: finds the feed or page that a user means by a URL
- ``channel_creation``: creates channels, and wakes up those that are not polled any more
- ``prober``: requests to URLs that are not polled yet, while a user waits
"""
