-- Drop the records that the taker of a move has, and read the following ones; if there are none, change the table.
-- KEYS: see keyspace_pages
-- ARGV: fields as read, to set and to drop (JSON), positions to drop (concatenated), first and last position, maximum
--   number of records
-- Reply: {1, 1 if more records follow, records, …}, or {0} if the table has changed
-- include keyspace_table
-- include keyspace_page_reader
-- include keyspace_page_writer
local changes = cjson.decode(ARGV[1])
if not is_as_read(changes.read) then
  return {0}
end
for at = 1, #ARGV[2], POSITION do
  replace(string.sub(ARGV[2], at, at + POSITION - 1), function() end)
end
local reply = {1}
if add_range(reply, ARGV[3], ARGV[4], tonumber(ARGV[5])) == 0 then
  change_table(changes)
end
return reply
