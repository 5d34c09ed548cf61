{{/* Refuses, with a reason, what the schema cannot tell: values that contradict each other. */}}
{{- define "sallyport.checks" -}}
{{- include "sallyport.checks.onlyRelease" . -}}
{{- include "sallyport.checks.budget" . -}}
{{- $least := add .Values.shutdownDelaySeconds 50 -}}
{{- if lt (int .Values.terminationGracePeriodSeconds) (int $least) -}}
{{- fail (printf "terminationGracePeriodSeconds is %v and must be at least %v: shutdownDelaySeconds, and 50 seconds to end what is under way. A replica that is killed before may cost requests." .Values.terminationGracePeriodSeconds $least) -}}
{{- end -}}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.name is needed with serviceAccount.create=false: the rights of Sallyport must not go to the namespace's default ServiceAccount" -}}
{{- end -}}
{{- with .Values.webhook -}}
{{- if and (trim .clientCA) .clientCAConfigMap -}}
{{- fail "webhook: give either clientCA, as text, or clientCAConfigMap, the name of a ConfigMap that has it" -}}
{{- end -}}
{{- if contains "PRIVATE KEY" .clientCA -}}
{{- fail "webhook.clientCA has a private key: give the certificates of the authorities only" -}}
{{- end -}}
{{- if and .clientNames (not (trim .clientCA)) (not .clientCAConfigMap) -}}
{{- fail "webhook.clientNames needs webhook.clientCA or webhook.clientCAConfigMap: without an authority nobody's name is known" -}}
{{- end -}}
{{- end -}}
{{- with .Values.runtimes.pod.snapshots -}}
{{- if and .caConfigMap (not .repository) -}}
{{- fail "runtimes.pod.snapshots.caConfigMap needs runtimes.pod.snapshots.repository: without it no registry is asked" -}}
{{- end -}}
{{- end -}}
{{- $ports := dict -}}
{{- range $name := list "webhook" "metrics" "health" -}}
{{- $port := (index $.Values $name).port | toString -}}
{{- if hasKey $ports $port -}}
{{- fail (printf "%s.port and %s.port are both %s: a replica listens on three ports" (index $ports $port) $name $port) -}}
{{- end -}}
{{- $_ := set $ports $port $name -}}
{{- end -}}
{{- range $name, $policy := include "sallyport.policies" . | fromJson -}}
{{- if not $policy.spec.library -}}
{{- if le (mul $.Values.webhook.timeoutSeconds 1000) (int $policy.spec.timeoutMilliseconds) -}}
{{- fail (printf "policies.%s.timeoutMilliseconds is %v, and webhook.timeoutSeconds %v must be more than that: the API server would give up before the policy does" $name $policy.spec.timeoutMilliseconds $.Values.webhook.timeoutSeconds) -}}
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
{{- fail "podDisruptionBudget: give either minAvailable or maxUnavailable, and null to the other" -}}
{{- end -}}
{{- $replicas := int $.Values.replicas -}}
{{- $percent := toString .minAvailable | hasSuffix "%" -}}
{{- $all := ternary (eq (toString .minAvailable) "100%") (ge (int .minAvailable) $replicas) $percent -}}
{{- if and $min (or $all (and $percent (eq $replicas 1) (ne (toString .minAvailable) "0%"))) -}}
{{- fail (printf "podDisruptionBudget.minAvailable is %v with replicas %v: no node with a replica could ever be drained. Raise replicas, or set podDisruptionBudget.enabled=false." .minAvailable $replicas) -}}
{{- end -}}
{{- if and $max (has (toString .maxUnavailable) (list "0" "0%")) -}}
{{- fail (printf "podDisruptionBudget.maxUnavailable is %v: no node with a replica could ever be drained" .maxUnavailable) -}}
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
{{- fail (printf "Sallyport is in this cluster already: release %s in namespace %s (%s %s belongs to it). A cluster has one Sallyport. Upgrade that release with `helm upgrade %s -n %s ...`, or remove it first with `kubectl sallyport release --all` and `helm uninstall %s -n %s`."
  $release $namespace $kind (include "sallyport.webhookConfiguration" $) $release $namespace $release $namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
