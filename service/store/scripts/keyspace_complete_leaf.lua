-- Change the table when a leaf is complete, and drop the first tombstones of the leaf.
-- KEYS: see keyspace_pages
-- ARGV: fields as read, to set and to drop (JSON), first and last position of the leaf, maximum number of tombstones
-- Reply: {1, number of dropped tombstones}, or {0} if the table has changed
-- include keyspace_table
-- include keyspace_page_reader
-- include keyspace_page_writer
if not changed(cjson.decode(ARGV[1])) then
  return {0}
end
local ended = redis.call('ZRANGEBYLEX', ENDS, '[' .. ARGV[2], '[' .. ARGV[3], 'LIMIT', 0, ARGV[4])
for _, position in ipairs(ended) do
  replace(position, function() end)
end
return {1, #ended}
