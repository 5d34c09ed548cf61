{{/* Refuses, with a reason, what the schema cannot tell: values that contradict each other. */}}
{{- define "sallyport.checks" -}}
{{- include "sallyport.checks.onlyRelease" . -}}
{{- include "sallyport.checks.budget" . -}}
{{- $least := add .Values.shutdownDelaySeconds 50 -}}
{{- if lt (int .Values.terminationGracePeriodSeconds) (int $least) -}}
{{- fail (printf "terminationGracePeriodSeconds is %v but must be at least %v: shutdownDelaySeconds plus 50 seconds to finish running work. If a replica is killed earlier, requests may fail." .Values.terminationGracePeriodSeconds $least) -}}
{{- end -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name is required with serviceAccount.create=false: the namespace's default ServiceAccount must not get Sallyport's rights" -}}
{{- end -}}
{{- with .Values.webhook -}}
{{- if and (trim .clientCA) .clientCAConfigMap -}}
{{- fail "webhook: set either clientCA (PEM text) or clientCAConfigMap (name of a ConfigMap), not both" -}}
{{- end -}}
{{- if contains "PRIVATE KEY" .clientCA -}}
{{- fail "webhook.clientCA contains a private key: set only the CA certificates" -}}
{{- end -}}
{{- if and .clientNames (not (trim .clientCA)) (not .clientCAConfigMap) -}}
{{- fail "webhook.clientNames needs webhook.clientCA or webhook.clientCAConfigMap: without a CA, client names are not verified" -}}
{{- end -}}
{{- end -}}
{{- $mode := include "sallyport.certificateMode" . -}}
{{- with .Values.certs -}}
{{- if and (eq $mode "existing") (not .existingSecret) -}}
{{- fail "certs.mode=existing needs certs.existingSecret: the name of a Secret with tls.crt, tls.key and ca.crt" -}}
{{- end -}}
{{- if and .existingSecret (has .existingSecret (list (include "sallyport.certificateSecret" $) (include "sallyport.issuedCertificate" $))) -}}
{{- fail (printf "certs.existingSecret=%s is the name of a Secret that another mode writes: choose another name" .existingSecret) -}}
{{- end -}}
{{- if and (eq (.caBundle | default "" | trim) "cainjector") (not (has $mode (list "cert-manager" "existing"))) -}}
{{- fail (printf "certs.caBundle=cainjector needs certs.mode cert-manager or existing, but it is %s: cainjector does not know Sallyport's own certificate" $mode) -}}
{{- end -}}
{{- if contains "PRIVATE KEY" (.caBundle | default "") -}}
{{- fail "certs.caBundle contains a private key: set only CA certificates" -}}
{{- end -}}
{{- end -}}
{{- with .Values.runtimes.pod.snapshots -}}
{{- if and .caConfigMap (not .repository) -}}
{{- fail "runtimes.pod.snapshots.caConfigMap needs runtimes.pod.snapshots.repository" -}}
{{- end -}}
{{- end -}}
{{- $ports := dict -}}
{{- range $name := list "webhook" "metrics" "health" -}}
{{- $port := (index $.Values $name).port | toString -}}
{{- if hasKey $ports $port -}}
{{- fail (printf "%s.port and %s.port are both %s: each must be a port of its own" (index $ports $port) $name $port) -}}
{{- end -}}
{{- $_ := set $ports $port $name -}}
{{- end -}}
{{- range $name, $policy := include "sallyport.policies" . | fromJson -}}
{{- if not $policy.spec.library -}}
{{- if le (mul $.Values.webhook.timeoutSeconds 1000) (int $policy.spec.timeoutMilliseconds) -}}
{{- fail (printf "policies.%s.timeoutMilliseconds is %v, but must be less than webhook.timeoutSeconds (%v): otherwise the API server times out before the policy does" $name $policy.spec.timeoutMilliseconds $.Values.webhook.timeoutSeconds) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A budget must leave a node that can be drained. */}}
{{- define "sallyport.checks.budget" -}}
{{- with .Values.podDisruptionBudget -}}
{{- if .enabled -}}
{{- $min := kindIs "invalid" .minAvailable | not -}}
{{- $max := kindIs "invalid" .maxUnavailable | not -}}
{{- if eq $min $max -}}
{{- fail "podDisruptionBudget: set one of minAvailable and maxUnavailable, and the other to null" -}}
{{- end -}}
{{- $replicas := int $.Values.replicas -}}
{{- $percent := toString .minAvailable | hasSuffix "%" -}}
{{- $all := ternary (eq (toString .minAvailable) "100%") (ge (int .minAvailable) $replicas) $percent -}}
{{- if and $min (or $all (and $percent (eq $replicas 1) (ne (toString .minAvailable) "0%"))) -}}
{{- fail (printf "podDisruptionBudget.minAvailable is %v with replicas %v: no node with a replica can be drained. Raise replicas, or set podDisruptionBudget.enabled=false." .minAvailable $replicas) -}}
{{- end -}}
{{- if and $max (has (toString .maxUnavailable) (list "0" "0%")) -}}
{{- fail (printf "podDisruptionBudget.maxUnavailable is %v: no node with a replica can be drained" .maxUnavailable) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
One cluster has one Sallyport: its kinds belong to the whole cluster, and two would judge and carry out each operation twice. Helm
would say so too, by the first object that it cannot own. Only a cluster can be asked; `helm template` gets nothing from lookup.
*/}}
{{- define "sallyport.checks.onlyRelease" -}}
{{- range $kind := list "ValidatingWebhookConfiguration" "MutatingWebhookConfiguration" -}}
{{- $found := lookup "admissionregistration.k8s.io/v1" $kind "" (include "sallyport.webhookConfiguration" $) -}}
{{- $annotations := dig "metadata" "annotations" dict $found -}}
{{- $release := index $annotations "meta.helm.sh/release-name" | default "" -}}
{{- $namespace := index $annotations "meta.helm.sh/release-namespace" | default "" -}}
{{- if and $release (or (ne $release $.Release.Name) (ne $namespace $.Release.Namespace)) -}}
{{- fail (printf "Sallyport is already installed in this cluster: release %s in namespace %s (it owns %s %s). A cluster can have only one Sallyport. Upgrade that release with `helm upgrade %s -n %s ...`, or remove it first with `kubectl sallyport release --all` and `helm uninstall %s -n %s`."
  $release $namespace $kind (include "sallyport.webhookConfiguration" $) $release $namespace $release $namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
