-- Change the table as all of a leaf has arrived, and drop the first of its ends. KEYS see keyspace_pages
-- ARGV table as it was read, and changes (JSON), first and last position of the leaf, count
-- Returns {1, how many ends were dropped}, or {0} if the table is another by now.
-- include keyspace_table
-- include keyspace_pages
-- include keyspace_writing
if not changed(cjson.decode(ARGV[1])) then
  return {0}
end
local ended = redis.call('ZRANGEBYLEX', ENDS, '[' .. ARGV[2], '[' .. ARGV[3], 'LIMIT', 0, ARGV[4])
for _, position in ipairs(ended) do
  replace(position, function() end)
end
return {1, #ended}
