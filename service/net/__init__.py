"""HTTP clients and servers; the only package that connects to publishers.

The package has no policy: callers decide when and how often to fetch, and how to process a response. ``fetcher``
fetches one URL within hard limits, and connects only where ``address_guard`` allows it. Every connection, including
those of redirects and of IP literals, passes the guard when its socket is created, because then the actual address is
known. An earlier check of the name could be bypassed by DNS rebinding, and a check in the resolver by IP literals.

- Clients: ``fetcher`` for publishers, with ``response_reader``, ``link_headers``, ``content_encoding`` and
  ``error_translation``; ``peer_client`` for requests between workers, signed by ``peer_request_signatures``;
  ``internal_clients`` for other requests to Coronet's processes; ``http_upload_client`` for files on XMPP servers.
- Servers: ``http_server``, with ``client_address`` for clients behind proxies; ``health_endpoints``.
- Groups for limits and counts: ``sites_and_networks`` groups hosts by site, publishers' addresses by network, and users
  by domain.
"""
