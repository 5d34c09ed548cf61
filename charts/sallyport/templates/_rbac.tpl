{{/*
What policies may read beyond our own kinds, as JSON: a map from API groups to resources. It follows from the reads of the
shipped policies, and from whether they select by the labels of namespaces. A policy that somebody edits may want more:
rbac.reads.
*/}}
{{- define "sallyport.foreignReads" -}}
{{- $resources := dict "v1/Namespace" (list "" "namespaces") -}}
{{- $groups := dict -}}
{{- range $name, $policy := include "sallyport.policies" . | fromJson -}}
{{- $reads := $policy.spec.reads | default list -}}
{{- if or (dig "match" "namespaceSelector" false $policy.spec) $policy.spec.namespaceModes -}}
{{- $reads = append $reads (dict "apiVersion" "v1" "kind" "Namespace") -}}
{{- end -}}
{{- range $reads -}}
{{- $kind := printf "%s/%s" .apiVersion .kind -}}
{{- if not (hasPrefix "sallyport.dev/" $kind) -}}
{{- if not (hasKey $resources $kind) -}}
{{- fail (printf "policy %s reads %s, whose resource this chart does not know" $name $kind) -}}
{{- end -}}
{{- $group := index $resources $kind | first -}}
{{- $_ := set $groups $group (append (index $groups $group | default list) (index $resources $kind | last) | uniq | sortAlpha) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $groups -}}
{{- end -}}
