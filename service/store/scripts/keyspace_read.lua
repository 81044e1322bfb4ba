-- read-only
-- Run AcceptObject and read a page of the leaf.
-- KEYS: see keyspace_pages
-- ARGV: key, guess of its depth, first and last position under the prefix, maximum number of records
-- Reply: {label of the leaf or the table, 1 if more records follow, records, …}
-- include keyspace_accept
-- include keyspace_page_reader
local bits, high = ARGV[1], ARGV[4]
local label, standing = accepted(bits, ARGV[2])
local reply = {answer(label, standing)}
if label then
  local prefix = string.gsub(label, '%*', '')
  local last = struct.pack('>I4', tonumber(prefix .. string.rep('1', #bits - #prefix), 2))
  if struct.unpack('>I4', last) < struct.unpack('>I4', high) then
    high = last .. string.rep('\255', POSITION - 4)
  end
  add_range(reply, ARGV[3], high, tonumber(ARGV[5]))
end
return reply
