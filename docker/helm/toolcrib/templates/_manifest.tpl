{{/* Each name under which a client may address the Service, as the service compares them with `Host`. */}}
{{- define "toolcrib.hosts" -}}
{{- $name := include "toolcrib.fullname" . -}}
{{- $full := printf "%s.%s.svc" $name .Release.Namespace -}}
{{/* Prometheus and probes address a pod by its IP. IPv6 has brackets in `Host`. */}}
{{- concat (list $name (printf "%s.%s" $name .Release.Namespace) $full (printf "%s.%s" $full .Values.clusterDomain)
           "${env:POD_IP}" "[${env:POD_IP}]") .Values.allowedHosts (ternary (list .Values.ingress.host) list .Values.ingress.enabled) | uniq | toYaml }}
{{- end }}

{{- define "toolcrib.manifest" -}}
{{- $manifest := deepCopy .Values.manifest -}}
{{- $server := dict "linger" (printf "%ss" (include "toolcrib.lingerSeconds" .)) "drain" (printf "%ds" (int .Values.stop.drainSeconds)) -}}
{{- if eq .Values.mode "shared" -}}
{{- $_ := set $server "allowed_hosts" (include "toolcrib.hosts" . | fromYamlArray) -}}
{{- else if .Values.allowedHosts -}}
{{- $_ := set $server "allowed_hosts" .Values.allowedHosts -}}
{{- end -}}
{{- $server = merge $server (default dict $manifest.server) -}}
{{- $_ := set $manifest "server" $server -}}
{{/* On loopback of a pod, mode sidecar, no keys are needed. */}}
{{- if and (eq .Values.mode "shared") (not (hasKey $manifest "callers")) (not (dig "allow_open" false $server)) -}}
{{- $_ := set $manifest "callers" (list
      (dict "name" "agent" "key" "${file:/run/secrets/toolcrib/agent-key}")
      (dict "name" "operator" "key" "${file:/run/secrets/toolcrib/operator-key}" "admin" true)
      (dict "name" "prometheus" "key" "${file:/run/secrets/toolcrib/prometheus-key}" "metrics" true "allow" list)) -}}
{{- end -}}
{{- $has := not (empty $manifest.include) -}}
{{- range $section := list "tools" "python_modules" "mcp_servers" "openapi" -}}
{{/* Helm leaves a null in place that should remove an entry of a chart above. */}}
{{- range $name, $entry := default dict (index $manifest $section) -}}
{{- if kindIs "invalid" $entry -}}{{- $_ := unset (index $manifest $section) $name -}}{{- else -}}{{- $has = true -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $has -}}
{{- $_ := set $manifest "tools" (dict "calculator" (dict "kind" "native")) -}}
{{- end -}}
{{- toYaml $manifest }}
{{- end }}

{{/* Changes with what a reload does not take, so that the pods are replaced then. */}}
{{- define "toolcrib.checksum" -}}
{{- $manifest := include "toolcrib.manifest" . -}}
{{- if .Values.restartOnChange -}}
{{- print $manifest (toYaml .Values.files) | sha256sum }}
{{- else -}}
{{- pick (fromYaml $manifest) "server" "ledger" "cache" "compat" | toYaml | sha256sum }}
{{- end }}
{{- end }}
