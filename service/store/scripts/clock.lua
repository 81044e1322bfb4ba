-- Library: the time by Redis's clock: seconds and microseconds, and the Unix time in ms.
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
