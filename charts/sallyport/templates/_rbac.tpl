{{/* Which abilities of files/rights.yaml are enabled, as JSON. */}}
{{- define "sallyport.abilities" -}}
{{- $disabled := include "sallyport.disabled" . | fromJson -}}
{{- $enabled := dict "images" .Values.diskImages.enabled "reports" .Values.audits.reports -}}
{{- range $ability, $part := dict "vsphere" "vsphere" "templates" "vspheretemplates" "pod" "pod" "kubevirt" "kubevirt" "pools" "virtualmachinepools" -}}
{{- $_ := set $enabled $ability (not (hasKey $disabled $part)) -}}
{{- end -}}
{{- $_ := set $enabled "drains" (and $enabled.pod (not (hasKey $disabled "drains"))) -}}
{{- toJson $enabled -}}
{{- end -}}

{{/*
What is read beyond our own kinds, as JSON: a map from API groups to resources to whether they are watched, and by which policies. It
follows from the reads of the shipped policies, and from whether they select by the labels of namespaces. A policy that somebody edits
may want more: rbac.reads.
*/}}
{{- define "sallyport.foreignReads" -}}
{{- $resources := include "sallyport.resourcesOfKinds" . | fromYaml -}}
{{- /* The pool reconciler looks at what marks members as busy, and replicas at each other, whatever policies read. */ -}}
{{- $groups := dict "coordination.k8s.io" (dict "leases" (dict "watched" false "policies" list)) -}}
{{- range $name, $policy := include "sallyport.policies" . | fromJson -}}
{{- $reads := $policy.spec.reads | default list -}}
{{- if or (dig "match" "namespaceSelector" false $policy.spec) $policy.spec.namespaceModes -}}
{{- $reads = append $reads (dict "apiVersion" "v1" "kind" "Namespace") -}}
{{- end -}}
{{- range $reads -}}
{{- $kind := printf "%s/%s" .apiVersion .kind -}}
{{- if not (hasPrefix "sallyport.dev/" $kind) -}}
{{- if not (hasKey $resources $kind) -}}
{{- fail (printf "policy %s reads %s, but this chart does not know its resource" $name $kind) -}}
{{- end -}}
{{- $group := regexReplaceAll "/?[^/]*$" .apiVersion "" -}}
{{- $of := index $groups $group | default dict -}}
{{- $resource := index $resources $kind -}}
{{- $known := index $of $resource | default (dict "watched" false "policies" list) -}}
{{- $watched := or $known.watched (ne (.freshness | default "Cached") "Live") -}}
{{- $_ := set $of $resource (dict "watched" $watched "policies" (append $known.policies $name | uniq)) -}}
{{- $_ := set $groups $group $of -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $groups -}}
{{- end -}}

{{/*
What policies may read, whatever else Sallyport's ServiceAccount may read: RESOURCE=POLICY+POLICY for what shipped policies read, or RESOURCE
for what all policies may read, which are Namespaces and what rbac.reads lists.
*/}}
{{- define "sallyport.policyReads" -}}
{{- $entries := list -}}
{{- range $group, $resources := include "sallyport.foreignReads" . | fromJson -}}
{{- range $resource, $read := $resources -}}
{{- $entry := $group | empty | ternary $resource (printf "%s.%s" $resource $group) -}}
{{- if ne $entry "namespaces" -}}
{{- $entry = printf "%s=%s" $entry (join "+" $read.policies) -}}
{{- end -}}
{{- if $read.policies -}}
{{- $entries = append $entries $entry -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $granted := .Values.rbac.reads -}}
{{- if $granted -}}
{{- $entries = append $entries $name -}}
{{- end -}}
{{- end -}}
{{- join "," $entries -}}
{{- end -}}

{{/* The kinds that shipped policies read, and what RBAC calls them. */}}
{{- define "sallyport.resourcesOfKinds" -}}
v1/Namespace: namespaces
v1/Node: nodes
v1/PersistentVolumeClaim: persistentvolumeclaims
v1/Pod: pods
v1/Service: services
apps/v1/DaemonSet: daemonsets
apps/v1/Deployment: deployments
apps/v1/StatefulSet: statefulsets
batch/v1/CronJob: cronjobs
coordination.k8s.io/v1/Lease: leases
batch/v1/Job: jobs
apiextensions.k8s.io/v1/CustomResourceDefinition: customresourcedefinitions
kubevirt.io/v1/VirtualMachine: virtualmachines
kubevirt.io/v1/VirtualMachineInstance: virtualmachineinstances
kubevirt.io/v1/VirtualMachineInstanceReplicaSet: virtualmachineinstancereplicasets
pool.kubevirt.io/v1beta1/VirtualMachinePool: virtualmachinepools
{{- end -}}
