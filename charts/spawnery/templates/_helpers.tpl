{{/* Labels of every object. */}}
{{- define "spawnery.labels" -}}
app.kubernetes.io/name: spawnery
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/*
Which pods are of a part. Not the component: the leader writes that label on its own pod, which must stay its ReplicaSet's.
*/}}
{{- define "spawnery.selector" -}}
app.kubernetes.io/name: spawnery
spawnery.cloud/part: {{ . }}
{{- end }}

{{- define "spawnery.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ include "spawnery.tag" .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end }}

{{/* A tag of digits may come as a number, which must not be written as 2.0261129e+07. */}}
{{- define "spawnery.tag" -}}
{{- if kindIs "string" . }}{{ . }}{{ else }}{{ int64 . }}{{ end -}}
{{- end }}

{{- define "spawnery.operatorReplicas" -}}
{{- .Values.operator.replicas | default (ternary 2 1 .Values.operator.leaderElect) -}}
{{- end }}

{{- define "spawnery.priorityClassName" -}}
{{- with .Values.priorityClass.name }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* How a pod of a part is placed and secured. Takes {root, part, account}. */}}
{{- define "spawnery.pod" -}}
serviceAccountName: {{ .account }}
enableServiceLinks: false
{{- include "spawnery.priorityClassName" .root }}
securityContext:
  runAsNonRoot: true
  seccompProfile:
    type: RuntimeDefault
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
  {{- include "spawnery.affinity" . | nindent 2 }}
{{- end }}

{{/*
The owner's affinity, and replicas apart. Not topologySpreadConstraints: of two of those, a scheduler heeds none on nodes
without one of the labels, and nodes without zones are common. A full node must not keep a part from running.
Takes {root, part}.
*/}}
{{- define "spawnery.affinity" -}}
{{- $affinity := deepCopy .root.Values.affinity }}
{{- $anti := $affinity.podAntiAffinity | default dict }}
{{- $preferred := $anti.preferredDuringSchedulingIgnoredDuringExecution | default list }}
{{- range $key, $weight := dict "kubernetes.io/hostname" 100 "topology.kubernetes.io/zone" 50 }}
{{- $labels := include "spawnery.selector" $.part | fromYaml }}
{{- /* Pods of the version before are on their way out and do not count. */}}
{{- $revision := list "pod-template-hash" }}
{{- $term := dict "topologyKey" $key "labelSelector" (dict "matchLabels" $labels) "matchLabelKeys" $revision }}
{{- $preferred = append $preferred (dict "weight" $weight "podAffinityTerm" $term) }}
{{- end }}
{{- $_ := set $anti "preferredDuringSchedulingIgnoredDuringExecution" $preferred }}
{{- set $affinity "podAntiAffinity" $anti | toYaml }}
{{- end }}

{{/* What all our own containers have in common. */}}
{{- define "spawnery.container" -}}
image: {{ include "spawnery.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
env:
  - name: POD_NAME
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  - name: POD_NAMESPACE
    valueFrom:
      fieldRef:
        fieldPath: metadata.namespace
livenessProbe:
  httpGet:
    path: /livez
    port: health
  periodSeconds: 20
  failureThreshold: 3
readinessProbe:
  httpGet:
    path: /readyz
    port: health
  periodSeconds: 2
  failureThreshold: 2
{{- end }}

{{- define "spawnery.logArgs" -}}
- --log-format={{ .Values.log.format }}
- --log-level={{ .Values.log.level }}
{{- end }}

{{/* ServiceAccount, roles and bindings of a part. Takes {root, account}. */}}
{{- define "spawnery.rbac" -}}
{{- $rights := get (.root.Files.Get "files/rights.yaml" | fromYaml) .account -}}
{{- $compat := .root.Values.rbac.upstreamCompatibility -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .account }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "spawnery.labels" .root | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .account }}
  labels:
    {{- include "spawnery.labels" .root | nindent 4 }}
rules:
  {{- include "spawnery.rules" (dict "rights" $rights.cluster "compat" $compat) | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .account }}
  labels:
    {{- include "spawnery.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .account }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .root.Release.Namespace }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .account }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "spawnery.labels" .root | nindent 4 }}
rules:
  {{- include "spawnery.rules" (dict "rights" $rights.own "compat" $compat) | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .account }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "spawnery.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .account }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{- define "spawnery.rules" -}}
{{- $rules := .rights.needed -}}
{{- if .compat -}}
{{- $rules = concat $rules .rights.compat -}}
{{- end -}}
{{- toYaml $rules -}}
{{- end }}

{{/* A budget for ourselves: one replica at a time. Takes {root, part, name}. */}}
{{- define "spawnery.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "spawnery.labels" .root | nindent 4 }}
spec:
  # Not minAvailable: a single replica would then block every drain.
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "spawnery.selector" .part | nindent 6 }}
{{- end }}

{{/* Metrics from those who may, health from everybody. */}}
{{- define "spawnery.adminIngress" -}}
- ports:
    - port: 8080
      protocol: TCP
  {{- with .Values.networkPolicy.metricsFrom }}
  from:
    {{- toYaml . | nindent 4 }}
  {{- end }}
- ports:
    - port: 8081
      protocol: TCP
{{- end }}
