-- The subscription that a user index holds to a channel. It stands by the 20 bytes of the channel's id. An older Coronet
-- wrote those as 40 digits: what it left is brought over when it is looked for.
local function place(cid)
  local part = {}
  for i = 1, 5 do
    part[i] = tonumber(string.sub(cid, 8 * i - 7, 8 * i), 16)
  end
  return struct.pack('>I4I4I4I4I4', unpack(part))
end
local function held_of(index, cid)
  local own = place(cid)
  local held = redis.call('HGET', index, own)
  if not held then
    held = redis.call('HGET', index, cid)
    if held then
      redis.call('HDEL', index, cid)
      redis.call('HSET', index, own, held)
    end
  end
  return held
end
-- The fields of a subscription: number, seq, version given last, since when, and of one that is paused ' VERSION', the
-- last one that was not withheld, with a star if nobody but we paused it.
local function fields_of(held)
  return string.match(held, '^(%S+) (%S+) (%S+) (%S+)(.*)$')
end
