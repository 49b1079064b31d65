-- Script of wrk: posts the bodies of a file, one a line, to /translate, and prints the figures as JSON.
-- Usage: wrk -s sentences.lua URL -- FILE
local threads = 0

function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

function init(arguments)
  local headers = {["Content-Type"] = "application/json"}
  requests, position = {}, 0
  for body in io.lines(arguments[1]) do
    requests[#requests + 1] = wrk.format("POST", "/translate", headers, body)
  end
  -- Each thread begins elsewhere, so that they do not send the same texts at the same time.
  position = number * 997 % #requests
end

function request()
  position = position % #requests + 1
  return requests[position]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests": %d, "seconds": %f, "p50_ms": %f, "p99_ms": %f, "max_ms": %f, "failed": %d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    latency.max / 1e3, errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
