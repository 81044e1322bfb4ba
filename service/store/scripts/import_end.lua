-- Delete an import, unless feeds are queued.
-- KEYS: queued feeds, counts, failed feeds
-- Reply: 1 if it was deleted, else 0
if redis.call('LLEN', KEYS[1]) > 0 then
  return 0
end
redis.call('DEL', KEYS[2], KEYS[3])
return 1
