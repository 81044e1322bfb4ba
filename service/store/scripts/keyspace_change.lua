-- Change the server table if it has not changed.
-- KEYS: see keyspace_pages
-- ARGV: fields as read, to set and to drop (JSON)
-- Reply: {1}, or {0} if the table has changed
-- include keyspace_table
return {changed(cjson.decode(ARGV[1])) and 1 or 0}
