-- Store the result of a poll, and update the evidence of consecutive polls with the same charge (the symptom of a
-- failed poll): another charge restarts the evidence, a successful poll deletes it. The back-off is the time for which
-- polls have been failing; the time between two failed polls counts at most as much as the time before them. A failed
-- poll before the last recovery is not judged: its node stored it late.
-- KEYS: channel, poll results
-- ARGV: result (msgpack, '' if it is stored already), maximum number of results, charge ('' after a successful poll,
--   '?' if undecided), time (Unix s), node id, time that counts at least (s), longest back-off (s)
-- Reply: {condition, back-off in s, evidence as JSON or ''}, or nil if there is nothing to judge
local held = redis.call('HMGET', KEYS[1], 'url', 'condition', 'failing_since', 'backoff', 'evidence', 'failed',
  'recovered')
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
if charge ~= '' and at <= tonumber(held[7] or 0) then
  return false
end
local condition, backoff = held[2] or '', '0'
if charge ~= '' and string.sub(charge, 1, 6) ~= 'moved:' then
  local failing_s, passed_s = tonumber(held[4] or 0), math.max(0, at - tonumber(held[6] or at))
  failing_s = failing_s + math.min(passed_s, math.max(failing_s, tonumber(ARGV[6])))
  backoff = tostring(math.min(failing_s, tonumber(ARGV[7])))
  redis.call('HSETNX', KEYS[1], 'failing_since', ARGV[4])
  redis.call('HSET', KEYS[1], 'backoff', backoff)
  if at > tonumber(held[6] or 0) then
    redis.call('HSET', KEYS[1], 'failed', ARGV[4])
  end
elseif held[3] then
  redis.call('HDEL', KEYS[1], 'failing_since', 'failed', 'backoff')
end
if charge == 'busy' then
  return {condition, backoff, ''}
end
if charge == '' then
  if held[3] or held[5] then
    redis.call('HSET', KEYS[1], 'recovered', ARGV[4])
  end
  if held[5] then
    redis.call('HDEL', KEYS[1], 'evidence')
  end
  return condition ~= '' and {condition, backoff, ''}
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
return {condition, backoff, kept}
