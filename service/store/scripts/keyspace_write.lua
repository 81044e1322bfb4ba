-- Write a subscription, or its end, if its leaf is here. KEYS see keyspace_pages   ARGV key, guess, record
-- Returns the answer.
-- include keyspace_accept
-- include keyspace_pages
-- include keyspace_writing
local label, standing = accepted(ARGV[1], ARGV[2])
if label then
  keep(ARGV[3], standing ~= 'active')
end
return answer(label, standing)
