"""HTTP clients and servers; the only package that connects to publishers.

Callers decide when and how often to fetch, and how to process a response. ``fetcher`` fetches one URL within hard
limits. ``address_guard`` checks every connection, including those of redirects, when its socket is created. Only then
the actual address is known: an earlier check of the name could be bypassed by DNS rebinding.

- Client for publishers: ``fetcher``, with ``response_reader``, ``link_headers``, ``content_encoding`` and
  ``error_translation``.
- Client for requests between workers: ``peer_client``. ``peer_request_signatures`` signs the requests.
- Other clients: ``internal_clients`` for Coronet's own processes, ``http_upload_client`` for files on XMPP servers.
- Servers: ``http_server``, ``health_endpoints``, and ``client_address`` for clients behind proxies.
- ``sites_and_networks``: the groups of hosts, addresses and users by which requests are limited and counted.
"""
