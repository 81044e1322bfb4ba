"""Handlers of requests that bots and the console send to workers, for example to poll a channel at once.

A channel is a feed or page.

- ``request_dispatcher``: passes each request to its handler, and sends the reply
- ``new_url_resolver``: finds the feed or page that a user means by a URL
- ``channel_creation``: creates channels, and wakes up those that are no longer polled
- ``prober``: fetches URLs that are not polled yet, while a user waits
"""
