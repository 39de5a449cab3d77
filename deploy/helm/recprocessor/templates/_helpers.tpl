{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "recprocessor.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* Labels that select the pods of a part: (dict "root" $ "part" "host"). */}}
{{- define "recprocessor.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "recprocessor.labels" -}}
{{ include "recprocessor.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* An image: (dict "root" $ "image" "recprocessor"). */}}
{{- define "recprocessor.image" -}}
{{- with .root.Values.image -}}
{{- if .registry }}{{ .registry | trimSuffix "/" }}/{{ end }}{{ $.image }}:{{ .tag | default $.root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "recprocessor.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.user }}
runAsGroup: {{ .Values.user }}
fsGroup: {{ .Values.user }}
# Otherwise every file of the volume would be visited at each start of a pod.
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "recprocessor.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Requests that equal limits: (dict "cpu" 4 "memory" "8Gi"). All containers have them, so the pod's QoS is Guaranteed. */}}
{{- define "recprocessor.resources" -}}
requests:
  cpu: {{ .cpu | quote }}
  memory: {{ .memory }}
limits:
  cpu: {{ .cpu | quote }}
  memory: {{ .memory }}
{{- end }}

{{- define "recprocessor.tlsSecret" -}}
{{ .Values.proxy.tlsSecret | default (printf "%s-proxy-tls" (include "recprocessor.name" .)) }}
{{- end }}

{{- define "recprocessor.tokenSecret" -}}
{{ .Values.proxy.tokenSecret | default (printf "%s-tokens" (include "recprocessor.name" .)) }}
{{- end }}

{{/* Domain of the pods of the proxy: each has a name below it. */}}
{{- define "recprocessor.proxyDomain" -}}
{{ include "recprocessor.name" . }}-proxies.{{ .Release.Namespace }}.svc
{{- end }}

{{/* The volumes with models and with what proxies share. */}}
{{- define "recprocessor.sharedVolumes" -}}
{{- $name := include "recprocessor.name" . }}
- name: models
{{- if .Values.models.volume }}
  {{- toYaml .Values.models.volume | nindent 2 }}
{{- else if and .Values.sharedStore.url .Values.modelStore.url }}
  emptyDir: {}
{{- else }}
  persistentVolumeClaim:
    claimName: {{ $name }}-models
{{- end }}
{{- if not .Values.sharedStore.url }}
- name: shared
{{- if .Values.sharedStore.volume }}
  {{- toYaml .Values.sharedStore.volume | nindent 2 }}
{{- else }}
  persistentVolumeClaim:
    claimName: {{ $name }}-shared
{{- end }}
{{- end }}
{{- end }}

{{/* Nodes and zones get equal numbers of pods: (dict "root" $ "part" "host" "skew" 1). */}}
{{- define "recprocessor.spread" -}}
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: {{ $.skew }}
  topologyKey: {{ $key }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "recprocessor.selector" $ | nindent 6 }}
{{- end }}
{{- end }}

{{/* Where pods run: (dict "of" .Values.host). */}}
{{- define "recprocessor.placement" -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" }}
{{- with index $.of $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Credentials of the model store. */}}
{{- define "recprocessor.storeSecret" -}}
{{- with .Values.modelStore.secret }}
envFrom:
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end }}
