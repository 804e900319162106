{{/*
What a JSON Schema cannot say. Each message names the value to change.
*/}}
{{- define "toolcrib.checks" -}}
{{- $manifest := .Values.manifest -}}
{{- $server := default dict $manifest.server -}}
{{- range $key, $use := dict "linger" "stop.lingerSeconds" "drain" "stop.drainSeconds" "listen" "listenAddress" "allowed_hosts" "allowedHosts" -}}
{{- if hasKey $server $key -}}
{{- fail (printf "manifest.server.%s: set %s instead; the chart derives other settings from it" $key $use) -}}
{{- end -}}
{{- end -}}
{{- if hasKey (default dict $manifest.ledger) "url" -}}
{{- fail "manifest.ledger.url: set database.urlSecret or database.url instead; TOOLCRIB_LEDGER takes precedence over the manifest" -}}
{{- end -}}
{{- range $at, $caller := default list $manifest.callers -}}
{{- if and (hasKey $caller "key") (not (contains "${" (toString $caller.key))) -}}
{{- fail (printf "manifest.callers[%d].key: a literal key would stand in a ConfigMap; write ${file:/run/secrets/toolcrib/NAME} and put the key into a Secret of secrets.names" $at) -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := .Values.files -}}
{{- if eq $name "toolcrib.yaml" -}}
{{- fail "files: toolcrib.yaml is made from `manifest`; give the file another name, and name it in manifest.include" -}}
{{- else if not (regexMatch "^[-._a-zA-Z0-9]+$" $name) -}}
{{- fail (printf "files: `%s` cannot be a key of a ConfigMap; use letters, digits, `-`, `_` and `.`" $name) -}}
{{- end -}}
{{- end -}}
{{- range $text := append (values .Values.files) (toYaml $manifest) -}}
{{- if regexMatch "[a-z]://[^/@\\s:\"']*:[^$/@\\s\"'][^/@\\s\"']*@" $text -}}
{{- fail "manifest or files: a URL has a literal password, which would stand in a ConfigMap; write ${file:/run/secrets/toolcrib/NAME} in its place" -}}
{{- end -}}
{{- range $line := regexFindAll "(?im)^[ \\t-]*[\"']?(proxy-)?(authorization|x-api-key)[\"']?:[ \\t]+[^\\s].*$" $text -1 -}}
{{- if not (contains "${" $line) -}}
{{- fail (printf "manifest or files: the header %s has a literal value, which would stand in a ConfigMap; write ${file:/run/secrets/toolcrib/NAME} in its place" (trimAll " -\"'" (first (splitList ":" $line)))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $database := .Values.database -}}
{{- if or (eq .Values.mode "shared") (eq .Values.sidecar.ledger "postgres") -}}
{{- if and $database.url (regexMatch "://[^/@]*:[^$/@][^/@]*@" $database.url) -}}
{{- fail "database.url: it has a literal password; write $(DB_PASSWORD) in its place and name the Secret in database.passwordSecret" -}}
{{- end -}}
{{- if and $database.url (contains "$(DB_PASSWORD)" $database.url) (not $database.passwordSecret.name) -}}
{{- fail "database.passwordSecret.name: database.url has $(DB_PASSWORD), so name the Secret with the password" -}}
{{- end -}}
{{- if and (not $database.url) (not $database.urlSecret.name) -}}
{{- fail "database.urlSecret.name: name the Secret with the URL of the PostgreSQL database, or set database.url" -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.mode "shared" -}}
{{- if and (hasKey $manifest "callers") (not $manifest.callers) (not $server.allow_open) -}}
{{- fail "manifest.callers: a shared service needs callers with keys; without them it does not start on an address beyond loopback" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) -}}
{{- fail "ingress.host: name the host, which the service must know, too" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (gt (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- fail (printf "autoscaling.minReplicas: %d is greater than autoscaling.maxReplicas, %d" (int .Values.autoscaling.minReplicas) (int .Values.autoscaling.maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- end }}
