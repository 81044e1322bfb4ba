-- Return a token to a bucket, if the bucket exists.
-- KEYS: bucket
if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('HINCRBYFLOAT', KEYS[1], 'tokens', 1)
end
