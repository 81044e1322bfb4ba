import converse from "./vendor/converse/converse.min.js";

const chat = document.getElementById("chat").dataset;
const scheme = location.protocol === "https:" ? "wss" : "ws";

converse.initialize({
  allow_logout: false,
  allow_non_roster_messaging: true, // the bot wants no presence
  allow_registration: false,
  assets_path: new URL("./vendor/converse/", import.meta.url).pathname,
  authentication: "login",
  auto_join_private_chats: [chat.bot],
  auto_login: true,
  auto_reconnect: true,
  blacklisted_plugins: ["converse-omemo", "converse-omemo-views", "converse-register"],
  dark_theme: "dracula",
  discover_connection_methods: false,
  i18n: "en",
  jid: chat.jid,
  loglevel: "error",
  password: chat.password,
  persistent_store: "sessionStorage",
  play_sounds: false,
  show_background: false,
  show_connection_url_input: false,
  theme: "classic",
  singleton: true,
  view_mode: "embedded",
  websocket_url: `${scheme}://${location.host}${location.pathname}/xmpp`,
});
