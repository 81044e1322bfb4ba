-- Drop what the taker has, and return what is to follow; if that is nothing, change the table. KEYS see keyspace_pages
-- ARGV table as it was read, and changes (JSON), positions to drop (joined), first and last position, count
-- Returns {1, whether more follows, records, …}, or {0} if the table is another by now.
-- include keyspace_table
-- include keyspace_pages
-- include keyspace_writing
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
