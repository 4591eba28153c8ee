{{/* Labels of every object. */}}
{{- define "tailbound.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/part-of: tailbound
{{ include "tailbound.instance" . }}
{{- end }}

{{/* Labels that selectors use: they never change between releases. */}}
{{- define "tailbound.instance" -}}
app.kubernetes.io/name: tailbound
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Beginning of the names of cluster-wide objects: two releases share none. */}}
{{- define "tailbound.clusterName" -}}
{{- contains .Chart.Name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) -}}
{{- end }}

{{/* The namespaces that an admission policy is about: those of this release. */}}
{{- define "tailbound.policyScope" -}}
{{- with .Values.watchNamespaces }}
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: In
      values: {{ toJson . }}
{{- end }}
{{- end }}

{{/* Where a container finds the token of its ServiceAccount: no other container of the pod has it. */}}
{{- define "tailbound.apiTokenMount" -}}
- name: api-token
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end }}

{{/* Secret with the certificate with which gateways answer the operator. */}}
{{- define "tailbound.observedSecret" -}}
{{ .Values.gateway.observedTLS.secretName | default "tailbound-gateway-observed" }}
{{- end }}

{{- define "tailbound.apiTokenVolume" -}}
- name: api-token
  projected:
    sources:
      - serviceAccountToken:
          expirationSeconds: 3600
          path: token
      - configMap:
          name: kube-root-ca.crt
          items:
            - key: ca.crt
              path: ca.crt
{{- end }}

{{/* Image of one part: (dict "root" $ "image" .Values.image.operator). */}}
{{- define "tailbound.image" -}}
{{- $image := .root.Values.image -}}
{{- $registry := required "image.registry is empty: set it to the registry that holds the images tailbound and tailbound-runtime, built from operator/Containerfile and runtime_image/Containerfile" $image.registry -}}
{{- if .image.digest -}}
{{ printf "%s/%s@%s" $registry .image.repository .image.digest }}
{{- else -}}
{{ printf "%s/%s:%s" $registry .image.repository ($image.tag | default .root.Chart.AppVersion) }}
{{- end -}}
{{- end }}

{{/* The container of our own model server. */}}
{{- define "tailbound.modelServer" -}}
image: {{ .image | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
command: [python, -m, tailbound_runtime]
ports:
  - name: http
    containerPort: 8080
readinessProbe:
  httpGet: {path: /v2/health/ready, port: http}
  periodSeconds: 1
  timeoutSeconds: 2
  failureThreshold: 3
livenessProbe:
  httpGet: {path: /v2/health/live, port: http}
  initialDelaySeconds: 10
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end }}

{{/* Pod-level security that the `restricted` Pod Security Standard asks for. */}}
{{- define "tailbound.podSecurityContext" -}}
runAsNonRoot: true
{{- if not (kindIs "invalid" .Values.components.userId) }}
{{- $user := .Values.components.userId | int64 }}
runAsUser: {{ $user }}
runAsGroup: {{ $user }}
fsGroup: {{ $user }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Container-level security: the same standard, and a read-only root filesystem. */}}
{{- define "tailbound.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Spread over nodes and zones, where there are several: (dict "root" $ "component" "gateway"). */}}
{{- define "tailbound.spread" -}}
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "tailbound.instance" $.root | nindent 6 }}
      app.kubernetes.io/component: {{ $.component }}
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}

{{/* Where the pods of one part may run: its values. */}}
{{- define "tailbound.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Environment that names the pod itself. */}}
{{- define "tailbound.podEnv" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- end }}

{{/* What is watched in every watched namespace: nothing here names a namespace. */}}
{{- define "tailbound.operatorRules" -}}
- apiGroups: [tailbound.dev]
  resources: [inferenceservices]
  verbs: [get, list, watch]
- apiGroups: [tailbound.dev]
  resources: [servingruntimes]
  verbs: [list, watch]
- apiGroups: [tailbound.dev]
  resources: [inferenceservices/status]
  verbs: [update]
# Some clusters ask for this of whoever sets owner references that block their owner's deletion.
- apiGroups: [tailbound.dev]
  resources: [inferenceservices/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [controllerrevisions, deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
# Jobs find the digests of models that have none in the spec.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
# From these, pods claim the devices of a HardwareClass with a resourceClaim.
- apiGroups: [resource.k8s.io]
  resources: [resourceclaimtemplates]
  verbs: [get, list, watch, create, patch, delete]
# Caches of models. Garbage collection deletes them.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  {{- /* delete is for no deletion: templates/operator/claims.yaml refuses each. */}}
  verbs: [get, list, watch, create, patch{{ if .Values.ownerReferencesEnforced }}, delete{{ end }}]
# Pods that have ended for good are deleted.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, delete]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}

{{/* What a request does to the annotations by which people act on a rollout. */}}
{{- define "tailbound.actions" -}}
['tailbound.dev/promote', 'tailbound.dev/abort', 'tailbound.dev/retry', 'tailbound.dev/rollback-to', 'tailbound.dev/pause', 'tailbound.dev/refresh']
{{- end }}

{{- define "tailbound.actionsVariables" -}}
- name: before
  expression: "oldObject != null && has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}"
- name: after
  expression: "has(object.metadata.annotations) ? object.metadata.annotations : {}"
- name: actions
  expression: "{{ include "tailbound.actions" . }}"
- name: untouched
  expression: "variables.actions.all(action, variables.before[?action].orValue('') == variables.after[?action].orValue(''))"
- name: byBefore
  expression: "variables.before[?'tailbound.dev/requested-by'].orValue('')"
- name: byAfter
  expression: "variables.after[?'tailbound.dev/requested-by'].orValue('')"
{{- end }}

{{- define "tailbound.gatewayRules" -}}
- apiGroups: [tailbound.dev]
  resources: [inferenceservices]
  verbs: [list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
{{- end }}

{{/* The bytes of a Kubernetes quantity, or of a size of Prometheus, whose MB, GB and TB are powers of 1024. */}}
{{- define "tailbound.bytes" -}}
{{- $text := kindIs "string" . | ternary . (float64 . | printf "%.0f") -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- $decimal := dict "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 -}}
{{- $binary := dict "Ki" 0x1p10 "Mi" 0x1p20 "MB" 0x1p20 "Gi" 0x1p30 "GB" 0x1p30 "Ti" 0x1p40 "TB" 0x1p40 -}}
{{ mulf (trimSuffix $unit $text | float64) (get (merge $decimal $binary) $unit | default 1) }}
{{- end }}

{{/* Where the operator finds Prometheus; empty if there is none. */}}
{{- define "tailbound.prometheusURL" -}}
{{- if and .Values.prometheus.enabled .Values.prometheus.url -}}
{{- fail (printf "prometheus.url is %s and prometheus.enabled is true: unset one, the operator reads a single Prometheus" .Values.prometheus.url) -}}
{{- end -}}
{{- if .Values.prometheus.enabled -}}
{{ printf "http://tailbound-prometheus.%s.svc.%s:9090" .Release.Namespace .Values.clusterDomain }}
{{- else -}}
{{ .Values.prometheus.url }}
{{- end -}}
{{- end }}

{{/* The rules of one process, cluster-wide or in each watched namespace: (dict "root" $ "component" "operator"). */}}
{{- define "tailbound.watchRoles" -}}
{{- $root := .root -}}
{{- $account := printf "tailbound-%s" .component -}}
{{- $name := printf "%s-%s" (include "tailbound.clusterName" $root) .component -}}
{{- $kind := empty $root.Values.watchNamespaces | ternary "ClusterRole" "Role" -}}
{{- range $namespace := $root.Values.watchNamespaces | default (list "") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ $name }}
  {{- with $namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "tailbound.labels" $root | nindent 4 }}
rules:
  {{- include (printf "tailbound.%sRules" $.component) $root | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ $name }}
  {{- with $namespace }}
  namespace: {{ . | quote }}
  {{- end }}
  labels:
    {{- include "tailbound.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $account }}
    namespace: {{ $root.Release.Namespace | quote }}
{{- end }}
{{- end }}
