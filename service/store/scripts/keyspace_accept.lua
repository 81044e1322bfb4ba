-- Library: AcceptObject of CLASH, for a key as a string of 0s and 1s, and a guess of its depth. KEYS[1] is the server
-- table.

-- Return the state of a leaf from its entry in the table; nil if the entry is no leaf.
local function leaf_standing(entry)
  local standing = entry and string.match(entry, '^%a+')
  return (standing == 'active' or standing == 'arriving' or standing == 'returning') and standing or nil
end

local function label_of(bits, depth)
  return depth < #bits and string.sub(bits, 1, depth) .. '*' or bits
end

-- Return the label and the state of the key's leaf; nil if this keyspace has no such leaf, or keys of another length.
local function accepted(bits, depth)
  local label = label_of(bits, tonumber(depth))
  local found = redis.call('HMGET', KEYS[1], 'bits', label)
  if found[1] ~= tostring(#bits) then
    return nil
  end
  local standing = leaf_standing(found[2])
  if standing then
    return label, standing
  end
  local labels = {}
  for other = 0, #bits do
    labels[other + 1] = label_of(bits, other)
  end
  for place, entry in ipairs(redis.call('HMGET', KEYS[1], unpack(labels))) do
    if leaf_standing(entry) then
      return labels[place], leaf_standing(entry)
    end
  end
end

-- Return the label of an active leaf; in every other case the table, from which the caller derives the answer.
local function answer(label, standing)
  return standing == 'active' and label or redis.call('HGETALL', KEYS[1])
end
