-- The health of an InferenceService for Argo CD. In the ConfigMap argocd-cm, this text is the value of the key
-- resource.customizations.health.tailbound.dev_InferenceService
--
-- | the service ...                                            | health      |
-- |------------------------------------------------------------|-------------|
-- | has no status of its newest spec yet                       | Progressing |
-- | waits for a change by hand (Stalled)                       | Degraded    |
-- | is stopped, or its rollout waits for a person              | Suspended   |
-- | went back to its former revision (Promoted is False)       | Degraded    |
-- | is ready                                                   | Healthy     |
-- | is on its way (Reconciling)                                | Progressing |
-- | is anything else: it was ready, or cannot become it        | Degraded    |
local function health(status, condition)
  return { status = status, message = condition and condition.message or "" }
end

local status = obj.status or {}
local found = {}
for _, condition in ipairs(status.conditions or {}) do
  found[condition.type] = condition
end

local function is(kind, value)
  return found[kind] ~= nil and found[kind].status == value
end

local ready = found.Ready
if ready == nil or (status.observedGeneration or 0) < obj.metadata.generation then
  return health("Progressing", ready)
end
if is("Stalled", "True") then
  return health("Degraded", found.Stalled)
end
if obj.spec.stopped then
  return health("Suspended", ready)
end
if status.rollout ~= nil and status.rollout.state == "Paused" then
  return { status = "Suspended", message = status.rollout.message or "" }
end
if is("Promoted", "False") then
  return health("Degraded", found.Promoted)
end
if ready.status == "True" then
  return health("Healthy", ready)
end
if is("Reconciling", "True") then
  return health("Progressing", found.Reconciling)
end
return health("Degraded", ready)
