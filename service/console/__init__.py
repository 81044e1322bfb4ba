"""The admin console: the web server with the admin pages and the JSON API.

Rules:

* **Default deny.** The authorization middleware refuses access to every route that is not declared public.
* **CSRF protection.** Every change (a request with any method except GET and HEAD) needs an ``Origin`` of this console
  and a CSRF token, or an API key.
* **Works without JavaScript.** htmx only refreshes parts of pages that are also served as whole pages.
* **Strict CSP.** No inline scripts or styles, and nothing from another origin.
* **Publishers' content is text.** Jinja escapes it; only http and https links are rendered as links.
* **Works without Redis.** Pages answer 503 with an explanation, ``/livez`` answers 200, and ``/readyz`` states why the
  console is not ready.

``auth`` contains authentication and authorization. ``resources`` contains one module for each subject, with its pages
and its API operations.
"""
