-- read-only
-- Read the decayed counts of all cells.
-- KEYS: 1 load of a directory's matrices (see matrix_count_load)
-- Reply: {now in ms, {field, value, …}}
local clock = redis.call('TIME')
return {string.format('%d', clock[1] * 1000 + math.floor(clock[2] / 1000)), redis.call('HGETALL', KEYS[1])}
