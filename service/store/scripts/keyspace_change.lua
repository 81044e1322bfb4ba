-- KEYS table, …   ARGV table as it was read, and changes (JSON). Returns {1}; {0} if it is another by now.
-- include keyspace_table
return {changed(cjson.decode(ARGV[1])) and 1 or 0}
