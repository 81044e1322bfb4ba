-- Store the result of a poll, and update the evidence of consecutive polls: another charge restarts it, a good poll
-- deletes it.
-- KEYS: channel, poll results
-- ARGV: result (msgpack, '' if it is stored already), maximum number of results, charge ('?' if undecided), time
--   (Unix s), node id
-- Reply: {condition, refusals, evidence as JSON or ''}, or nil if there is nothing to judge
local held = redis.call('HMGET', KEYS[1], 'url', 'condition', 'failing_since', 'refusals', 'evidence')
if not held[1] then
  return false
end
if ARGV[1] ~= '' then
  redis.call('LPUSH', KEYS[2], ARGV[1])
  redis.call('LTRIM', KEYS[2], 0, tonumber(ARGV[2]) - 1)
  redis.call('HSET', KEYS[1], 'polled', ARGV[4])
end
local charge, at, node = ARGV[3], tonumber(ARGV[4]), ARGV[5]
if charge == '?' then
  return false
end
local condition = held[2] or ''
if charge == 'busy' then
  redis.call('HSETNX', KEYS[1], 'failing_since', ARGV[4])
  return {condition, redis.call('HINCRBY', KEYS[1], 'refusals', 1), ''}
end
if held[4] then
  redis.call('HDEL', KEYS[1], 'refusals')
end
if charge ~= '' and string.sub(charge, 1, 6) ~= 'moved:' then
  redis.call('HSETNX', KEYS[1], 'failing_since', ARGV[4])
elseif held[3] then
  redis.call('HDEL', KEYS[1], 'failing_since')
end
if charge == '' then
  if held[5] then
    redis.call('HDEL', KEYS[1], 'evidence')
  end
  return condition ~= '' and {condition, 0, ''}
end
local evidence = held[5] and cjson.decode(held[5])
if not evidence or evidence.charge ~= charge then
  evidence = {charge = charge, first_s = at, polls = 0, nodes = {}}
end
if math.abs(at - (evidence.last_s or 0)) > 0.001 then -- else the report is repeated
  evidence.polls = evidence.polls + 1
end
evidence.last_s = at
local known = #evidence.nodes >= 8
for _, witness in ipairs(evidence.nodes) do
  known = known or witness == node
end
if not known then
  table.insert(evidence.nodes, node)
end
local kept = cjson.encode(evidence)
redis.call('HSET', KEYS[1], 'evidence', kept)
return {condition, 0, kept}
