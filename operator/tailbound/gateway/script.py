"""The Lua script that Envoy runs for each request: what it refuses, and what it notes for `counting`.

It notes in the request's dynamic metadata, for inference calls only:

| field    | value                                                                                    |
|----------|------------------------------------------------------------------------------------------|
| received | milliseconds until the last byte of the request had arrived; absent before               |
| waited   | milliseconds from then to the end of the answer, or to its start if it is long; absent before |
| long     | "yes" if the answer has more than LONG_BYTES, so that its end may have waited for the client |

A request is an inference call if it is a POST to an inference path of its service.
"""

import re
from collections.abc import Iterable
from typing import Final

from tailbound.api.inference_paths import DEFAULT_INFERENCE_PATHS
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
LONG_BYTES: Final = 32_768
"""Half of what Envoy buffers for a client that does not read: so much of an answer always arrives."""


def lua_patterns(paths: Iterable[str]) -> list[str]:
    """Lua patterns that match whole paths, where * is any part without a slash and ** at the end any rest."""
    return [f"^{_pattern(path)}$" for path in paths]


def _pattern(path: str) -> str:
    open_end = path.endswith("**")
    parts = (path[:-2] if open_end else path).split("*")
    return "[^/]+".join(re.sub(r"([^A-Za-z0-9/_])", r"%\1", part) for part in parts) + (
        ".*" if open_end else ""
    )


def _table(patterns: Iterable[str]) -> str:
    return "{" + ", ".join(f"[==[{pattern}]==]" for pattern in patterns) + "}"


# Scope keys are compared byte by byte: only hosts written with capitals pay for a second look-up.
_SCRIPT: Final = f"""
local default_paths = {_table(lua_patterns(DEFAULT_INFERENCE_PATHS))}

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

local function is_inference(handle, headers)
  if headers:get(":method") ~= "POST" then return false end
  local path = string.match(headers:get(":path") or "", "^[^?#]*")
  for _, pattern in ipairs(handle:metadata():get("{PATHS_FIELD}") or default_paths) do
    if string.find(path, pattern) then return true end
  end
  return false
end

function envoy_on_request(handle)
  local began, headers = now(handle), handle:headers()
  if refuses(handle, headers) then return end
  fold_host(handle, headers)
  if not is_inference(handle, headers) then return end
  notes(handle):set("{NOTES}", "began", began)
  for _ in handle:bodyChunks() do end
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
    """The source, for a gateway that takes bodies of so many bytes."""
    return _SCRIPT.replace("LIMIT", str(max_request_bytes))
