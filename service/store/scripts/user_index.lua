-- Library: reads the user index. Its fields are the 20 bytes of channel ids.
-- Return the field of a channel: the 20 bytes of its id.
local function place(cid)
  local part = {}
  for i = 1, 5 do
    part[i] = tonumber(string.sub(cid, 8 * i - 7, 8 * i), 16)
  end
  return struct.pack('>I4I4I4I4I4', unpack(part))
end

-- Return the subscription to a channel; false without one.
local function held_of(index, cid)
  return redis.call('HGET', index, place(cid))
end

-- Return the parts of a subscription 'NUMBER SEQ SEEN SINCE[ VERSION[*]]': its number, the seq of its last change, the
-- last version that was queued for it, when it began, and, if it is paused, ' VERSION', the last version before the
-- pause, with a star if the pause is automatic.
local function fields_of(held)
  return string.match(held, '^(%S+) (%S+) (%S+) (%S+)(.*)$')
end
