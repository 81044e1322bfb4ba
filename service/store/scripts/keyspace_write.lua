-- Run AcceptObject and write a subscription or a tombstone if its leaf is here.
-- KEYS: see keyspace_pages
-- ARGV: key, guess of its depth, record
-- Reply: {label of the leaf, or the table}
-- include keyspace_accept
-- include keyspace_page_reader
-- include keyspace_page_writer
local label, standing = accepted(ARGV[1], ARGV[2])
if label then
  keep(ARGV[3], standing ~= 'active')
end
return {answer(label, standing)}
