-- The subscription that a user index holds to a channel, by the 20 bytes of the channel's id.
local function place(cid)
  local part = {}
  for i = 1, 5 do
    part[i] = tonumber(string.sub(cid, 8 * i - 7, 8 * i), 16)
  end
  return struct.pack('>I4I4I4I4I4', unpack(part))
end
local function held_of(index, cid)
  return redis.call('HGET', index, place(cid))
end
-- The fields of a subscription: number, seq, version given last, since when, and of one that is paused ' VERSION', the
-- last one that was not withheld, with a star if nobody but we paused it.
local function fields_of(held)
  return string.match(held, '^(%S+) (%S+) (%S+) (%S+)(.*)$')
end
