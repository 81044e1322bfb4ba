"""The admin console: the only web server.

Rules of the room:

* **Default deny.** The auth middleware closes every route that is not declared public; a test walks them all.
* **Every change** (any method but GET and HEAD) needs an ``Origin`` that is ours and a CSRF token, or a bearer token.
* **Useful without JavaScript.** htmx only refreshes and replaces parts that also stand as pages.
* **Strict CSP.** No inline script, no inline style, nothing from another origin.
* **What publishers wrote is text.** Jinja2 escapes it; links are shown only if they are http(s).
* The store may be away: pages answer 503 with words, ``/livez`` stays 200, ``/readyz`` says why not.
"""
