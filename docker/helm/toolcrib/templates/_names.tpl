{{- define "toolcrib.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "toolcrib.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := include "toolcrib.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Never changes in the life of a release: the selector of a Deployment cannot be changed. */}}
{{- define "toolcrib.selectorLabels" -}}
app.kubernetes.io/name: {{ include "toolcrib.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "toolcrib.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "toolcrib.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "toolcrib.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "toolcrib.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "toolcrib.configMapName" -}}
{{- default (include "toolcrib.fullname" .) .Values.existingConfigMap }}
{{- end }}

{{- define "toolcrib.claimName" -}}
{{- default (printf "%s-ledger" (include "toolcrib.fullname" .)) .Values.sidecar.existingClaim }}
{{- end }}

{{- define "toolcrib.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* In mode sidecar the agent has stopped already, so there is nobody to wait for. */}}
{{- define "toolcrib.lingerSeconds" -}}
{{- ternary .Values.stop.lingerSeconds 0 (eq .Values.mode "shared") }}
{{- end }}

{{/* The service needs at most 8 s after `linger` and `drain`. */}}
{{- define "toolcrib.stopSeconds" -}}
{{- add (include "toolcrib.lingerSeconds" . | int) .Values.stop.drainSeconds 10 }}
{{- end }}
