"""Requests that bots and the console send to workers, for example to probe a URL, to poll a channel, or to explain it.

- ``request_dispatcher``: dispatches each request to its handler, and sends the reply
- ``new_url_resolver``: a URL that a user enters: the feed there, the feeds to which a page links, or the page itself
- ``channel_creation``: creates channels, and wakes up dormant ones
- ``prober``: requests to URLs that are not polled yet, while a user waits
"""
