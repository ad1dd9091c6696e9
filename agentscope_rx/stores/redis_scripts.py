"""What `RedisStore` has the server do at once: one Lua script for each verb that writes.

A session has three keys: a hash with its counters and its lease, its state, and its log, a stream whose entries have
their numbers as ids. Times are microseconds of the server's clock. Lua's numbers hold them exactly, and write them
with an exponent unless told otherwise.
"""

from __future__ import annotations

import hashlib
from typing import Final

from agentscope_rx.frozen import frozen


@frozen(kw_only=False)
class Script:
    """A script, and the name by which a server that has seen it knows it."""

    text: str
    digest: str


def _script(body: str) -> Script:
    text = _COMMON + body
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


#: The first argument of each script is the fence of who writes, or nothing.
_COMMON: Final = """
local session, state, log = KEYS[1], KEYS[2], KEYS[3]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function field(name)
  return tonumber(redis.call('HGET', session, name) or '0')
end

local function set(name, value)
  redis.call('HSET', session, name, string.format('%.0f', value))
end

local function touch(ids)
  redis.call('HSET', session, 'ids', ids)
  set('touched', now)
end

local function remove()
  local there = field('version') > 0 or field('last_seq') > 0
  redis.call('DEL', session, state, log)
  return there and 1 or 0
end

if ARGV[1] ~= '' and redis.call('HGET', session, 'fence') ~= ARGV[1] then
  return {'lost', 0}
end
"""

GET: Final = _script("""
return {field('version'), redis.call('GET', state)}
""")

#: Arguments: fence, ids, expected version, body.
PUT: Final = _script("""
local version = field('version')
if version ~= tonumber(ARGV[3]) then return {'conflict', version} end
redis.call('SET', state, ARGV[4])
set('version', version + 1)
touch(ARGV[2])
return {'done', version + 1}
""")

#: Arguments: fence, ids, expected number, records.
APPEND: Final = _script("""
local last = field('last_seq')
if last ~= tonumber(ARGV[3]) then return {'conflict', last} end
for at = 4, #ARGV do
  last = last + 1
  redis.call('XADD', log, string.format('%.0f-0', last), 'r', ARGV[at])
end
set('last_seq', last)
touch(ARGV[2])
return {'done', last}
""")

#: Arguments: no fence, ids, holder, time to live. A fence is above each of an earlier session of this name.
ACQUIRE: Final = _script("""
if field('leased_until') > now then return {'busy', redis.call('HGET', session, 'holder')} end
local fence = math.max(field('fence') + 1, now)
set('fence', fence)
set('leased_until', now + tonumber(ARGV[4]))
redis.call('HSET', session, 'holder', ARGV[3])
touch(ARGV[2])
return {'done', fence}
""")

#: Arguments: fence, ids, time to live.
RENEW: Final = _script("""
set('leased_until', now + tonumber(ARGV[3]))
touch(ARGV[2])
return {'done', 0}
""")

#: Arguments: fence.
RELEASE: Final = _script("""
set('fence', field('fence') + 1)
set('leased_until', 0)
return {'done', 0}
""")

#: Arguments: fence.
DELETE: Final = _script("""
return {'done', remove()}
""")

#: Arguments: no fence, age.
PRUNE: Final = _script("""
if field('leased_until') > now or field('touched') + tonumber(ARGV[2]) > now then return {'kept', 0} end
return {'done', remove()}
""")

#: A blob has one key, a hash: its version and its bytes.
PUT_BLOB: Final = """
if (redis.call('HGET', KEYS[1], 'version') or '0') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'body', ARGV[3])
return 1
"""
