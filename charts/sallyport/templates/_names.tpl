{{/* The name of the application in labels. */}}
{{- define "sallyport.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* What the names of most objects begin with. At most 51 characters, so that what is appended stays within the 63 of a Service. */}}
{{- define "sallyport.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 51 | trimSuffix "-" -}}
{{- else -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 51 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 51 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "sallyport.webhookService" -}}
{{ include "sallyport.fullname" . }}-webhook
{{- end -}}

{{/* The webhook configurations have the same name in every release: one cluster has one Sallyport. */}}
{{- define "sallyport.webhookConfiguration" -}}
sallyport
{{- end -}}

{{/* Where policies for kinds that are not Sallyport's are registered: the manager has it by the name of the former. */}}
{{- define "sallyport.policiesConfiguration" -}}
{{ include "sallyport.webhookConfiguration" . }}-policies
{{- end -}}

{{/* The Secret is made by the manager, not by the chart. */}}
{{- define "sallyport.certificateSecret" -}}
{{ include "sallyport.fullname" . }}-certificate
{{- end -}}

{{/* The Certificate of cert-manager, and its Secret: the manager has it by the name of the Service. */}}
{{- define "sallyport.issuedCertificate" -}}
{{ include "sallyport.webhookService" . }}-tls
{{- end -}}

{{- define "sallyport.certificateMode" -}}
{{- (.Values.certs).mode | default "auto" -}}
{{- end -}}

{{/* The annotations of the webhook configurations: with those for cainjector. */}}
{{- define "sallyport.webhookAnnotations" -}}
{{- /* AKS otherwise adds expressions to the selectors of all webhooks, which exempt the namespaces of anybody who may label them: kyverno#9947. */ -}}
{{- $annotations := dict "admissions.enforcer/disabled" "true" -}}
{{- if eq ((.Values.certs).caBundle | default "" | trim) "cainjector" -}}
{{- if eq (include "sallyport.certificateMode" .) "existing" -}}
{{- $_ := set $annotations "cert-manager.io/inject-ca-from-secret" (printf "%s/%s" .Release.Namespace .Values.certs.existingSecret) -}}
{{- else -}}
{{- $_ := set $annotations "cert-manager.io/inject-ca-from" (printf "%s/%s" .Release.Namespace (include "sallyport.issuedCertificate" .)) -}}
{{- end -}}
{{- end -}}
{{- merge (deepCopy (.Values.webhook.annotations | default dict)) $annotations | toYaml -}}
{{- end -}}

{{- define "sallyport.policiesConfigMap" -}}
{{ include "sallyport.fullname" . }}-policies
{{- end -}}

{{- define "sallyport.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "sallyport.fullname" .) -}}
{{- end -}}

{{/* The user that the ServiceAccount is to the API server. */}}
{{- define "sallyport.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "sallyport.serviceAccount" . }}
{{- end -}}

{{/* A digest wins over a tag. */}}
{{- define "sallyport.image" -}}
{{- $registry := (.Values.global).imageRegistry | default .Values.image.registry -}}
{{- with $registry }}{{ . }}/{{ end -}}
{{- .Values.image.repository -}}
{{- if .Values.image.digest -}}
@{{ .Values.image.digest }}
{{- else -}}
:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "sallyport.selectorLabels" -}}
app.kubernetes.io/name: {{ include "sallyport.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sallyport.labels" -}}
{{- $labels := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/version" (.Chart.AppVersion | replace "+" "_")
  "app.kubernetes.io/managed-by" .Release.Service
  "app.kubernetes.io/part-of" "sallyport" -}}
{{- merge (include "sallyport.selectorLabels" . | fromYaml) $labels .Values.commonLabels | include "sallyport.present" -}}
{{- end -}}

{{/*
The metadata of an object, from a dict: context; name; cluster (true for what belongs to no namespace); labels and annotations
of its own, which win over the common ones.
*/}}
{{- define "sallyport.metadata" -}}
{{- $annotations := merge (.annotations | default dict) .context.Values.commonAnnotations -}}
metadata:
  name: {{ .name }}
  {{- if not .cluster }}
  namespace: {{ .namespace | default .context.Release.Namespace }}
  {{- end }}
  labels:
    {{- merge (.labels | default dict) (include "sallyport.labels" .context | fromYaml) | include "sallyport.present" | nindent 4 }}
  {{- with $annotations }}
  annotations:
    {{- include "sallyport.present" . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* The binding of a ValidatingAdmissionPolicy that has the same name, from a dict: context and name. */}}
{{- define "sallyport.denies" -}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
{{ include "sallyport.metadata" (dict "context" .context "name" .name "cluster" true) }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end -}}

{{/*
The number of replicas: the value, unless somebody has scaled the Deployment (kubectl scale, an autoscaler). Then it stays as it is: Helm's
server-side apply would conflict over another number.
*/}}
{{- define "sallyport.replicas" -}}
{{- $live := lookup "apps/v1" "Deployment" .Release.Namespace (include "sallyport.fullname" .) -}}
{{- $replicas := .Values.replicas -}}
{{- range dig "metadata" "managedFields" list $live -}}
{{- if and (eq (.subresource | default "") "scale") (dig "fieldsV1" "f:spec" "f:replicas" "" . | kindIs "map") -}}
{{- $replicas = $live.spec.replicas -}}
{{- end -}}
{{- end -}}
{{- $replicas -}}
{{- end -}}

{{/* A map without the members that are null: Helm leaves those of earlier releases with --reuse-values. */}}
{{- define "sallyport.present" -}}
{{- $present := dict -}}
{{- range $key, $value := . -}}
{{- if kindIs "map" $value -}}
{{- $_ := set $present $key (include "sallyport.present" $value | fromYaml) -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $present $key $value -}}
{{- end -}}
{{- end -}}
{{- toYaml $present -}}
{{- end -}}

{{/* The ConfigMap with the authorities of the registry of snapshots; empty if it is not needed. */}}
{{- define "sallyport.snapshotCAConfigMap" -}}
{{- with .Values.runtimes.pod -}}
{{- .enabled | ternary .snapshots.caConfigMap "" -}}
{{- end -}}
{{- end -}}

{{/* The ConfigMap with the authorities of those who may call the webhooks; empty if anybody may. */}}
{{- define "sallyport.clientCAConfigMap" -}}
{{- with .Values.webhook -}}
{{- .clientCAConfigMap | default (ternary (printf "%s-clients" (include "sallyport.fullname" $)) "" (not (empty (trim .clientCA)))) -}}
{{- end -}}
{{- end -}}

{{/*
What is disabled, as JSON: a map from the name of a runtime, or the plural of a kind that is not reconciled, to the value that enables it.
*/}}
{{- define "sallyport.disabled" -}}
{{- $disabled := dict -}}
{{- range $what, $value := dict "vsphere" "runtimes.vsphere" "virtualmachinepools" "pools" "vspheretemplates" "templates" "drains" "runtimes.pod.drains" -}}
{{- $of := $.Values -}}
{{- range splitList "." $value -}}
{{- $of = index ($of | default dict) . -}}
{{- end -}}
{{- if eq (toString ($of).enabled) "false" -}}
{{- $_ := set $disabled $what (printf "%s.enabled" $value) -}}
{{- end -}}
{{- end -}}
{{- if $disabled.vsphere -}}
{{- $_ := set $disabled "vsphereservers" $disabled.vsphere -}}
{{- $_ := set $disabled "vspheretemplates" ($disabled.vspheretemplates | default $disabled.vsphere) -}}
{{- end -}}
{{- if not (.Values.runtimes.pod).enabled -}}
{{- $_ := set $disabled "pod" "runtimes.pod.enabled" -}}
{{- end -}}
{{- if not (include "sallyport.kubevirt" .) -}}
{{- $_ := set $disabled "kubevirt" "runtimes.kubevirt.enabled" -}}
{{- end -}}
{{- toJson $disabled -}}
{{- end -}}

{{/* What precedes the names of values in a command: the name of this chart, or its alias, in the chart that it is a part of. */}}
{{- define "sallyport.within" -}}
{{- if not .Chart.IsRoot }}{{ .Chart.Name }}.{{ end -}}
{{- end -}}

{{/* Whether machines of kind kubevirt are enabled; empty if not. */}}
{{- define "sallyport.kubevirt" -}}
{{- $value := (.Values.runtimes.kubevirt).enabled -}}
{{- $enabled := kindIs "invalid" $value | ternary "auto" (toString $value) -}}
{{- if or (eq $enabled "true") (and (eq $enabled "auto") (.Capabilities.APIVersions.Has "kubevirt.io/v1")) -}}
true
{{- end -}}
{{- end -}}
