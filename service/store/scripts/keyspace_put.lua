-- Store the records that a donor has handed over.
-- KEYS: see keyspace_pages
-- ARGV: fields of the table as read (JSON), records (concatenated)
-- Reply: {1}, or {0} if the table has changed
-- include keyspace_table
-- include keyspace_page_reader
-- include keyspace_page_writer
if not changed(cjson.decode(ARGV[1])) then
  return {0}
end
for at = 1, #ARGV[2], RECORD do
  keep(string.sub(ARGV[2], at, at + RECORD - 1), true)
end
return {1}
