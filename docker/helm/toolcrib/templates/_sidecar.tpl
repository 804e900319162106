{{/*
For the templates of a chart that has this one as a dependency, with `mode: sidecar`. Give each of them the scope of the dependency:

    {{- include "toolcrib.sidecar.container" .Subcharts.toolcrib | nindent 8 }}
*/}}

{{/* An item for `initContainers`. */}}
{{- define "toolcrib.sidecar.container" -}}
{{- if ne .Values.mode "sidecar" }}{{ fail "mode: the templates toolcrib.sidecar.* need `mode: sidecar`" }}{{ end -}}
{{- include "toolcrib.checks" . -}}
- name: toolcrib
  # What makes it a sidecar: it starts before the agent and stops after it.
  restartPolicy: Always
  {{- include "toolcrib.container" . | nindent 2 }}
  # It listens on loopback of the pod, which the kubelet cannot reach. So the probes run inside the container.
  startupProbe:
    exec: {command: [/toolcrib, healthcheck]}
    periodSeconds: 1
    timeoutSeconds: 6
    failureThreshold: {{ .Values.startSeconds }}
  readinessProbe:
    exec: {command: [/toolcrib, healthcheck]}
    periodSeconds: 5
    timeoutSeconds: 6
    failureThreshold: 3
  livenessProbe:
    exec: {command: [/toolcrib, healthcheck, --live]}
    periodSeconds: 10
    timeoutSeconds: 6
    failureThreshold: 6
{{- end }}

{{/* Items for `volumes`. */}}
{{- define "toolcrib.sidecar.volumes" -}}
{{- include "toolcrib.volumes" . }}
{{- end }}

{{/* The keys of the pod's `securityContext` that the sidecar needs. */}}
{{- define "toolcrib.sidecar.securityContext" -}}
{{- include "toolcrib.podSecurityContext" . }}
{{- end }}

{{/* A number for `terminationGracePeriodSeconds`: the agent stops first, then the sidecar. */}}
{{- define "toolcrib.sidecar.graceSeconds" -}}
{{- add .Values.sidecar.agentSeconds (include "toolcrib.stopSeconds" . | int) }}
{{- end }}

{{/* An item for `env` of the agent. */}}
{{- define "toolcrib.sidecar.env" -}}
- {name: TOOLCRIB_URL, value: "http://127.0.0.1:7411"}
{{- end }}

{{/* For `annotations` of the pod. */}}
{{- define "toolcrib.sidecar.annotations" -}}
checksum/toolcrib: {{ include "toolcrib.checksum" . }}
{{- end }}
