-- For api.py: posts calls with different ids. Arguments: key, the rest of the payload's object, recipients.

local head, tail, count = "", "", 0
local run = string.format("%08x", math.random(0, 0x7fffffff))

function init(arguments)
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["Authorization"] = "Bearer " .. arguments[1]
  head = '{"payload": {"callId": "' .. run .. "-"
  tail = '", ' .. arguments[2] .. ', "recipients": ' .. arguments[3] .. "}"
end

function request()
  count = count + 1
  return wrk.format(nil, nil, nil, head .. count .. tail)
end

function done(summary, latency)
  local errors = summary.errors
  print(string.format(
    '{"requests": %d, "rate": %f, "p50": %f, "p99": %f, "errors": %d}', summary.requests,
    summary.requests / summary.duration * 1e6, latency:percentile(50) / 1000, latency:percentile(99) / 1000,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
