-- read-only
-- Read a page of the key's leaf. KEYS see keyspace_pages
-- ARGV key, guess, first and last position under the prefix, count. Returns {answer, whether more follows, records, …}.
-- include keyspace_accept
-- include keyspace_pages
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
