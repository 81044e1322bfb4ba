-- Take over records that a donor has. KEYS see keyspace_pages   ARGV table as it was read (JSON), records (joined)
-- Returns {1}, or {0} if the table is another by now.
-- include keyspace_table
-- include keyspace_pages
-- include keyspace_writing
if not changed(cjson.decode(ARGV[1])) then
  return {0}
end
for at = 1, #ARGV[2], RECORD do
  keep(string.sub(ARGV[2], at, at + RECORD - 1), true)
end
return {1}
