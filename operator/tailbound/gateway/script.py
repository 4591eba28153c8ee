"""The Lua script that Envoy runs for each request: what it refuses, and what it notes for `counting`.

It notes in the request's dynamic metadata, for inference calls only:

| field    | value                                                                                    |
|----------|------------------------------------------------------------------------------------------|
| received | milliseconds until the last byte of the request had arrived; absent before               |
| waited   | milliseconds from then to the end of the answer, or to its start if it is long; absent before |
| long     | "yes" if the answer has more than LONG_BYTES, so that its end may have waited for the client |

A request is an inference call if it is a POST to an inference path of its service. It is refused with 421 if
it names another model than that of the service, which has the service's name:

| the path                 | names the model | compared                                              |
|--------------------------|-----------------|-------------------------------------------------------|
| has {model}, as in REST  | there           | always                                                |
| of the OpenAI protocol   | in its body     | if it is JSON with a length of at most NAMED_BYTES    |
| any other, gRPC included | elsewhere       | never: the server answers                             |

A runtime that lists /v1/chat/* in inferencePaths has calls of the last kind there, also beside the OpenAI
protocol.
"""

import re
from collections.abc import Iterable
from typing import Final

from tailbound.api.inference_paths import DEFAULT_INFERENCE_PATHS, MODEL, NAME_IN_BODY, naming
from tailbound.gateway.local_replies import WHOLE_BYTES

# Carries the host from the edge of Envoy to the choice of the scope; never from a client, never to a pod.
HOST_HEADER: Final = "x-tailbound-host"
# Tells the buffer filter to let a body through; never from a client, never to a pod.
STREAM_HEADER: Final = "x-tailbound-stream"
LUA_FILTER: Final = "envoy.filters.http.lua"
NOTES: Final = "tailbound.request"
"""Namespace of the dynamic metadata."""
RECEIVED, WAITED, LONG = "received", "waited", "long"
PATHS_FIELD: Final = "paths"
"""A field of the route's metadata for the Lua filter: patterns of inference paths other than the default."""
NAMED_BYTES: Final = 32_768
"""Bytes of a body that is searched for the name of a model. More than twice as many Envoy does not hold."""
OWNER_FIELD, MODEL_FIELD = "service", "model"
"""Fields of the same: the service as NAMESPACE/NAME, and the name of its model."""
LONG_BYTES: Final = 32_768
"""Half of what Envoy buffers for a client that does not read: an answer of this length always arrives."""


def lua_patterns(paths: Iterable[str]) -> list[str]:
    """Lua patterns that match whole paths, where * is any part without a slash and ** at the end any rest.

    What a pattern captures is the name of the model.
    """
    return [f"^{_pattern(naming(path))}$" for path in paths]


_STANDS_FOR: Final = {"*": "[^/]+", MODEL: "([^/]+)", "**": ".*"}


def _pattern(path: str) -> str:
    parts = re.split(rf"(\*\*|\*|{re.escape(MODEL)})", path)
    return "".join(_STANDS_FOR.get(part) or re.sub(r"([^A-Za-z0-9/_])", r"%\1", part) for part in parts)


def _table(patterns: Iterable[str]) -> str:
    return "{" + ", ".join(f"[==[{pattern}]==]" for pattern in patterns) + "}"


# Scope keys are compared byte by byte: only hosts written with capitals pay for a second look-up.
_SCRIPT: Final = f"""
local default_paths = {_table(lua_patterns(DEFAULT_INFERENCE_PATHS))}
local name_in_body = {{{", ".join(f"[ [==[{each}]==] ] = true" for each in lua_patterns(NAME_IN_BODY))}}}

local function now(handle) return handle:timestamp(EnvoyTimestampResolution.MILLISECOND) end

local function notes(handle) return handle:streamInfo():dynamicMetadata() end

local function refuses(handle, headers)
  if headers:get(":method") == "CONNECT" then
    handle:respond({{[":status"] = "405"}}, "")
    return true
  end
  local length = tonumber(headers:get("content-length") or "0") or 0
  if length > LIMIT and string.find(headers:get("content-type") or "", "application/grpc", 1, true) ~= 1 then
    handle:respond({{[":status"] = "413"}}, "")
    return true
  end
  if length > {WHOLE_BYTES} then headers:replace("{STREAM_HEADER}", "yes") end
  return false
end

local function fold_host(handle, headers)
  local host = headers:get("{HOST_HEADER}")
  if host == nil then return end
  local folded = string.lower(host)
  if folded ~= host then
    headers:replace("{HOST_HEADER}", folded)
    handle:clearRouteCache()
  end
end

local function matched(handle, headers)
  if headers:get(":method") ~= "POST" then return nil end
  local path = string.match(headers:get(":path") or "", "^[^?#]*")
  for _, pattern in ipairs(handle:metadata():get("{PATHS_FIELD}") or default_paths) do
    local found, _, name = string.find(path, pattern)
    if found then return pattern, name end
  end
  return nil
end

local function percent_decoded(text)
  return (string.gsub(text, "%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end))
end

local function end_of_string(text, start)
  local stop = start
  while true do
    stop = string.find(text, '"', stop + 1, true)
    if stop == nil then return nil end
    local before = stop - 1
    while string.byte(text, before) == 92 do before = before - 1 end
    if (stop - before) % 2 == 1 then return stop end
  end
end

local function model_of(text)
  local depth, at = 0, 1
  while true do
    local found, _, mark = string.find(text, '(["{{}}%[%]])', at)
    if found == nil then return nil end
    at = found + 1
    if mark == '"' then
      local stop = end_of_string(text, found)
      if stop == nil then return nil end
      at = stop + 1
      if depth == 1 and string.sub(text, found, stop) == '"model"' and string.find(text, "^%s*:", at) then
        return string.match(text, '^%s*:%s*"([^"\\\\]*)"', at)
      end
    elseif mark == "{{" or mark == "[" then depth = depth + 1
    else depth = depth - 1 end
  end
end

local function has_short_json(headers)
  local length = tonumber(headers:get("content-length") or "0") or 0
  local kind = string.lower(headers:get("content-type") or "")
  return length > 0 and length <= {NAMED_BYTES} and string.find(kind, "json", 1, true) ~= nil
end

local function names_another(handle, name)
  local model = handle:metadata():get("{MODEL_FIELD}")
  if model == nil or name == nil or name == model then return false end
  local shown = string.gsub(string.sub(name, 1, 64), "[^%w%p ]", "?")
  local text = "InferenceService %s serves the model '%s', and this request names '%s': write %s, or send it "
    .. "to the service of that model"
  handle:respond({{[":status"] = "421"}},
    string.format(text, handle:metadata():get("{OWNER_FIELD}") or "", model, shown, model))
  return true
end

function envoy_on_request(handle)
  local began, headers = now(handle), handle:headers()
  if refuses(handle, headers) then return end
  fold_host(handle, headers)
  local pattern, name = matched(handle, headers)
  if pattern == nil then return end
  if name ~= nil and names_another(handle, percent_decoded(name)) then return end
  notes(handle):set("{NOTES}", "began", began)
  if name_in_body[pattern] and has_short_json(headers) then
    local body = handle:body()
    if body ~= nil and names_another(handle, model_of(body:getBytes(0, body:length()))) then return end
  else
    for _ in handle:bodyChunks() do end
  end
  notes(handle):set("{NOTES}", "{RECEIVED}", string.format("%dms", now(handle) - began))
end

local function note_wait(handle, at)
  local noted = notes(handle):get("{NOTES}")
  local received = noted["{RECEIVED}"]
  local waited = 0
  if received then waited = at - noted.began - tonumber(string.sub(received, 1, -3)) end
  notes(handle):set("{NOTES}", "{WAITED}", string.format("%dms", math.max(waited, 0)))
end

function envoy_on_response(handle)
  if notes(handle):get("{NOTES}") == nil then return end
  local first, bytes = now(handle), 0
  for chunk in handle:bodyChunks() do
    bytes = bytes + chunk:length()
    if bytes > {LONG_BYTES} then
      notes(handle):set("{NOTES}", "{LONG}", "yes")
      note_wait(handle, first)
      return
    end
  end
  note_wait(handle, now(handle))
end
"""


def script(max_request_bytes: int) -> str:
    """The source, for a gateway that takes bodies of up to that many bytes."""
    return _SCRIPT.replace("LIMIT", str(max_request_bytes))
