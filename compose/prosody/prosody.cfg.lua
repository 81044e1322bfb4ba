-- The private XMPP server: people on c2s, the bots as components. No server-to-server; HTTP for files alone.
-- This file is a program: it reads the secret itself, so that no password stands in it.
local secret_file = assert(io.open("/run/secrets/xmpp_component_password"))
local bot_secret = assert(secret_file:read("l"), "the component's password file is empty")
secret_file:close()

data_path = "/data"
pidfile = "/tmp/prosody.pid"
admin_socket = "/tmp/prosody.sock"
log = { info = "*console" }
-- Where the certificates are: in Debian's folder, where it looks otherwise, it may not read.
certificates = "/run/secrets"

interfaces = { "*" }
c2s_ports = { 5222 }
c2s_direct_tls_ports = {}
component_interfaces = { "*" }
component_ports = { 5347 }
http_interfaces = { "*" }
http_ports = { 5280 }
http_default_host = "localhost"
https_ports = {}

authentication = "internal_hashed"
storage = "internal"
allow_registration = false
c2s_require_encryption = true

modules_enabled = {
	"admin_shell", "blocklist", "bookmarks", "carbons", "csi_simple", "disco", "mam", "offline",
	"pep", "ping", "posix", "private", "roster", "saslauth", "smacks", "tls", "vcard4",
	"vcard_legacy", "version",
}
modules_disabled = { "s2s" }

VirtualHost "localhost"
	ssl = { certificate = "/run/secrets/xmpp_tls.crt", key = "/run/secrets/xmpp_tls.key" }

-- Each lets in one connection: as many as there are to be bots at work (xmpp_jid and xmpp_shards).
-- A stopped bot keeps its connection; its successor is let in all the same.
Component "feeds.localhost"
	component_secret = bot_secret
	component_conflict_resolve = "kick_old"

Component "b2.feeds.localhost"
	component_secret = bot_secret
	component_conflict_resolve = "kick_old"

-- Where the bot publishes public channels, if compose.yaml gives it CORONET_PUBSUB_SERVICE.
Component "pubsub.localhost" "pubsub"
	admins = { "coronet@feeds.localhost" }

-- Lists of feeds that people send and get as files (XEP-0363), at the address that compose.yaml publishes.
Component "files.localhost" "http_file_share"
	http_host = "localhost"
	http_external_url = "http://localhost:5280/"
	http_file_share_size_limit = 5 * 1024 * 1024
