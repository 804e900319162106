{{/* What a container of both modes has. The list item begins in the caller. */}}
{{- define "toolcrib.container" -}}
image: {{ include "toolcrib.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  # Permits Landlock and seccomp, with which the service makes the sandbox of its programs.
  seccompProfile: {type: RuntimeDefault}
# Environments of Python modules are made here, if the ledger is not a file.
workingDir: /data
env:
  - {name: TOOLCRIB_MANIFEST, value: /etc/toolcrib/toolcrib.yaml}
  - {name: TOOLCRIB_LOG_FORMAT, value: json}
  {{- with .Values.logFilter }}
  - {name: TOOLCRIB_LOG, value: {{ . | quote }}}
  {{- end }}
  {{- if eq .Values.mode "shared" }}
  {{- $address := .Values.listenAddress }}
  - name: TOOLCRIB_LISTEN
    value: {{ printf "%s:7411" (ternary (printf "[%s]" $address) $address (contains ":" $address)) | quote }}
  # The manifest has it in server.allowed_hosts.
  - name: POD_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  {{- end }}
  {{- if or (eq .Values.mode "shared") (eq .Values.sidecar.ledger "postgres") }}
  {{- with .Values.database }}
  {{- if .url }}
  {{- if .passwordSecret.name }}
  - name: DB_PASSWORD
    valueFrom: {secretKeyRef: {name: {{ .passwordSecret.name | quote }}, key: {{ .passwordSecret.key | quote }}}}
  {{- end }}
  - name: TOOLCRIB_LEDGER
    value: {{ .url | quote }}
  {{- else }}
  - name: TOOLCRIB_LEDGER
    valueFrom: {secretKeyRef: {name: {{ .urlSecret.name | quote }}, key: {{ .urlSecret.key | quote }}}}
  {{- end }}
  {{- end }}
  {{- end }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
volumeMounts:
  # The folder, not a file of it: so changes reach a running service.
  - {name: toolcrib-manifest, mountPath: /etc/toolcrib, readOnly: true}
  {{- if include "toolcrib.secretNames" . | fromYamlArray }}
  - {name: toolcrib-secrets, mountPath: /run/secrets/toolcrib, readOnly: true}
  {{- end }}
  - {name: toolcrib-data, mountPath: /data}
  - {name: toolcrib-tmp, mountPath: /tmp}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "toolcrib.secretNames" -}}
{{- $names := .Values.secrets.names -}}
{{- if and (not $names) (eq .Values.mode "shared") -}}
{{- $names = list "toolcrib-keys" -}}
{{- end -}}
{{- toYaml $names }}
{{- end }}

{{- define "toolcrib.volumes" -}}
- name: toolcrib-manifest
  configMap: {name: {{ include "toolcrib.configMapName" . | quote }}}
{{- with include "toolcrib.secretNames" . | fromYamlArray }}
- name: toolcrib-secrets
  projected:
    defaultMode: 0440
    sources:
      {{- range . }}
      - secret: {name: {{ . | quote }}}
      {{- end }}
{{- end }}
- name: toolcrib-data
  {{- if and (eq .Values.mode "sidecar") (eq .Values.sidecar.ledger "claim") }}
  persistentVolumeClaim: {claimName: {{ include "toolcrib.claimName" . | quote }}}
  {{- else }}
  emptyDir: {sizeLimit: {{ .Values.dataSize | quote }}}
  {{- end }}
- name: toolcrib-tmp
  emptyDir: {sizeLimit: {{ .Values.tmpSize | quote }}}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "toolcrib.podSecurityContext" -}}
runAsNonRoot: true
# Lets the service read its secrets and write to its volumes.
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}
