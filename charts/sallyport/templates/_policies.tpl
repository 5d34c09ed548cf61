{{/*
The shipped policies, merged with the values: JSON, a map from the name of a policy to the whole RegoPolicy. Policies that are
not enabled are left out. Five templates ask for them, and reading them takes most of the time of a rendering: the first that asks
keeps the answer beside the values for the others.
*/}}
{{- define "sallyport.policies" -}}
{{- if not (hasKey .Values "mergedPolicies") -}}
{{- $_ := set .Values "mergedPolicies" (include "sallyport.policies.merge" .) -}}
{{- end -}}
{{- .Values.mergedPolicies -}}
{{- end -}}

{{- define "sallyport.policies.merge" -}}
{{- $all := dict -}}
{{- $account := include "sallyport.user" . -}}
{{- range $path, $_ := .Files.Glob "files/policies/*.yaml" -}}
{{- $policy := $.Files.Get $path | replace "system:serviceaccount:sallyport-system:sallyport" $account | fromYaml -}}
{{- $_ := set $all $policy.metadata.name $policy -}}
{{- end -}}
{{- range $name := keys (omit .Values.policies "defaultMode" "defaultNamespaceModes") | sortAlpha -}}
{{- if not (hasKey $all $name) -}}
{{- fail (printf "policies.%s: this release has no such policy; it ships %s. Apply policies of your own as RegoPolicies." $name (keys $all | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- $merged := dict -}}
{{- range $name, $policy := $all -}}
{{- $values := index $.Values.policies $name | default dict -}}
{{- if not (or $policy.spec.library (has $name (list (include "sallyport.policy.stamping" $) (include "sallyport.policy.self" $)))) -}}
{{- range $key, $default := dict "mode" "defaultMode" "namespaceModes" "defaultNamespaceModes" -}}
{{- if and (index $.Values.policies $default) (kindIs "invalid" (index $values $key)) -}}
{{- $values = set (deepCopy $values) $key (index $.Values.policies $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- include "sallyport.policy.check" (dict "name" $name "policy" $policy "values" $values) -}}
{{- /* The kinds of images-children need not be there, and without imports there is nothing for it to do. */}}
{{- $optIn := eq (dig "annotations" "sallyport.dev/opt-in" "" $policy.metadata) "true" -}}
{{- $enabled := ternary (eq (toString $values.enabled) "true") (ne (toString $values.enabled) "false") $optIn -}}
{{- if and $enabled (or $.Values.diskImages.enabled (ne $name "images-children")) -}}
{{- $exclusions := has $name (list (include "sallyport.policy.stamping" $) (include "sallyport.policy.self" $)) | ternary dict $.Values.exclusions -}}
{{- if eq $name (include "sallyport.policy.self" $) -}}
{{- /* It waits for a test run, which takes as long as the API server lets it. */ -}}
{{- $_ := set $policy.spec "timeoutMilliseconds" (mul $.Values.webhook.timeoutSeconds 800) -}}
{{- end -}}
{{- include "sallyport.policy.merge" (dict "policy" $policy "values" $values "exclusions" $exclusions) -}}
{{- $_ := set $merged $name $policy -}}
{{- end -}}
{{- end -}}
{{- toJson $merged -}}
{{- end -}}

{{/* A hash of the shipped policies. With other ones there are new replicas, which get ready if these can be applied. */}}
{{- define "sallyport.shipment" -}}
{{- include "sallyport.policies" . | sha256sum | trunc 16 -}}
{{- end -}}

{{/* Of a library only the Rego can be replaced; and everybody's objects need what policy defaults puts there. */}}
{{- define "sallyport.policy.check" -}}
{{- $name := .name -}}
{{- if .policy.spec.library -}}
{{- range $key := keys .values | sortAlpha -}}
{{- if not (has $key (list "modules" "tests")) -}}
{{- fail (printf "policies.%s.%s: %s is a library and is not evaluated itself: only its modules and tests can be set" $name $key $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq $name (include "sallyport.policy.stamping" .) -}}
{{- include "sallyport.policy.checkStamping" . -}}
{{- end -}}
{{- end -}}

{{/*
A mode governs refusals, and this policy refuses nothing. But in another than Enforce, or with onError Allow, an operation would pass
where the policy fails, and so the stamps that a client wrote.
*/}}
{{- define "sallyport.policy.checkStamping" -}}
{{- $name := .name -}}
{{- if or (eq (toString .values.enabled) "false") .values.match -}}
{{- fail (printf "policies.%s: it cannot be disabled or limited by match. It denies nothing; it writes into each operation the requester and the machine, which Sallyport needs to carry the operation out." $name) -}}
{{- end -}}
{{- if ne (.values.override | default "Nobody") "Nobody" -}}
{{- fail (printf "policies.%s.override: it cannot be overridden, because an operation without its fields is not carried out, or is carried out for another user." $name) -}}
{{- end -}}
{{- $modes := dict "mode" .values.mode -}}
{{- range $i, $entry := .values.namespaceModes -}}
{{- $_ := set $modes (printf "namespaceModes[%d].mode" $i) $entry.mode -}}
{{- end -}}
{{- $forged := "if it could not be evaluated, an operation would be admitted with a requester and a machine that the client wrote" -}}
{{- range $field, $mode := $modes -}}
{{- if ne ($mode | default "Enforce") "Enforce" -}}
{{- fail (printf "policies.%s.%s: must be Enforce, not %s: %s. The policy denies nothing else." $name $field $mode $forged) -}}
{{- end -}}
{{- end -}}
{{- if ne (.values.onError | default "Deny") "Deny" -}}
{{- fail (printf "policies.%s.onError: must be Deny: %s." $name $forged) -}}
{{- end -}}
{{- end -}}

{{/* The policy that changes what is written, and refuses nothing. */}}
{{- define "sallyport.policy.stamping" -}}
defaults
{{- end -}}

{{/* The policy about policies. Whoever no policy is to refuse could else rewrite them all. */}}
{{- define "sallyport.policy.self" -}}
policies-self
{{- end -}}

{{/* Changes the policy in place; gives nothing. */}}
{{- define "sallyport.policy.merge" -}}
{{- $spec := .policy.spec -}}
{{- $values := .values -}}
{{- range $key := list "mode" "namespaceModes" "override" "onError" "failurePolicy" "timeoutMilliseconds" -}}
{{- if not (kindIs "invalid" (index $values $key)) -}}
{{- $_ := set $spec $key (index $values $key) -}}
{{- end -}}
{{- end -}}
{{- with $values.parameters -}}
{{- $parameters := $spec.parameters | default dict -}}
{{- include "sallyport.mergeInto" (dict "into" $parameters "from" .) -}}
{{- $_ := set $spec "parameters" $parameters -}}
{{- end -}}
{{- range $key := list "modules" "tests" -}}
{{- with index $values $key -}}
{{- include "sallyport.policy.replaceSources" (dict "spec" $spec "key" $key "sources" .) -}}
{{- end -}}
{{- end -}}
{{- if not $spec.library -}}
{{- include "sallyport.policy.match" (dict "match" $spec.match "values" ($values.match | default dict) "exclusions" .exclusions) -}}
{{- end -}}
{{- end -}}

{{/* What a policy's own values say of namespaces, users and groups replaces; the exclusions of all policies are added. */}}
{{- define "sallyport.policy.match" -}}
{{- $match := .match -}}
{{- $own := .values -}}
{{- range $key := list "resources" "namespaceSelector" -}}
{{- with index $own $key -}}
{{- $_ := set $match $key . -}}
{{- end -}}
{{- end -}}
{{- $values := .values -}}
{{- $exclusions := .exclusions -}}
{{- range $key, $everywhere := dict "excludeNamespaces" "namespaces" "excludeUsers" "users" "excludeGroups" "groups" -}}
{{- $own := index $match $key | default list -}}
{{- if not (kindIs "invalid" (index $values $key)) -}}
{{- $own = index $values $key -}}
{{- end -}}
{{- with concat $own (index $exclusions $everywhere | default list) | uniq -}}
{{- $_ := set $match $key . -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Rego files of the same name are replaced, others are added. */}}
{{- define "sallyport.policy.replaceSources" -}}
{{- $sources := list -}}
{{- $replaced := dict -}}
{{- range .sources -}}
{{- $_ := set $replaced .name . -}}
{{- end -}}
{{- range index .spec .key | default list -}}
{{- $sources = append $sources (index $replaced .name | default .) -}}
{{- $_ := unset $replaced .name -}}
{{- end -}}
{{- range $name := keys $replaced | sortAlpha -}}
{{- $sources = append $sources (index $replaced $name) -}}
{{- end -}}
{{- $_ := set .spec .key $sources -}}
{{- end -}}

{{/*
Merges a map into another: maps are merged, everything else is replaced, null removes. Not mergeOverwrite, which leaves out what
is empty: an emptied list, a 0, a false.
*/}}
{{- define "sallyport.mergeInto" -}}
{{- $into := .into -}}
{{- range $key, $value := .from -}}
{{- $before := index $into $key -}}
{{- if and (kindIs "map" $value) (kindIs "map" $before) -}}
{{- include "sallyport.mergeInto" (dict "into" $before "from" $value) -}}
{{- else if kindIs "invalid" $value -}}
{{- $_ := unset $into $key -}}
{{- else -}}
{{- $_ := set $into $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}
