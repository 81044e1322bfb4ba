"""HTTP clients and servers. This is the only package that connects to publishers.

Callers decide when and how often to fetch, and how to process a response. ``fetcher`` fetches one URL within hard
limits. ``address_guard`` checks every connection, including those of redirects, when its socket is created. The actual
address is known only then: an earlier check of the host name could be bypassed by DNS rebinding.

- Client for publishers: ``fetcher``, with ``response_reader``, ``link_headers``, ``content_encoding`` and
  ``error_translation``.
- Client for requests between workers: ``peer_client``, with ``peer_request_signatures``, which signs the requests.
- Other clients: ``internal_clients`` for Coronet's own processes, ``http_upload_client`` for files on XMPP servers.
- Servers: ``http_server``, ``health_endpoints``, and ``client_address``, which identifies clients behind proxies.
- ``sites_and_networks``: the groups of hosts, addresses and users for which requests are limited and counted.
"""
