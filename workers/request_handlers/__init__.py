"""Requests that bots and the console send to workers.

Examples are to probe a URL (to fetch a URL that is not polled yet), to poll a channel at once, or to explain how often
a channel is polled.

- ``request_dispatcher``: dispatches each request to its handler, and sends the reply
- ``new_url_resolver``: a URL that a user enters: the feed there, the feeds to which a page links, or the page itself
- ``channel_creation``: creates channels, and wakes up dormant ones
- ``prober``: requests to URLs that are not polled yet, while a user waits
"""
