{{/* The manager's flags. Those without a value are left to the program's defaults. */}}
{{- define "sallyport.args" -}}
- manager
- --namespace={{ .Release.Namespace }}
- --replica-name=$(POD_NAME)
- --replica-uid=$(POD_UID)
- --shipped-policies={{ include "sallyport.policiesConfigMap" . }}
- --release={{ .Chart.Version }}
- --shipment={{ include "sallyport.shipment" . }}
- --webhook-port={{ .Values.webhook.port }}
- --webhook-service={{ include "sallyport.webhookService" . }}
{{- if include "sallyport.clientCAConfigMap" . }}
- --client-ca-file=/etc/sallyport/clients/ca.crt
{{- with .Values.webhook.clientNames }}
- --client-names={{ join "," . }}
{{- end }}
{{- end }}
- --webhook-configuration={{ include "sallyport.webhookConfiguration" . }}
- --certificate-mode={{ include "sallyport.certificateMode" . }}
- --certificate-secret={{ include "sallyport.certificateSecret" . }}
{{- with .Values.certs }}
{{- with .existingSecret }}
- --existing-secret={{ . }}
{{- end }}
{{- with .issuerRef }}
{{- if .name }}
- --certificate-issuer={{ .kind | default "Issuer" }}.{{ .group | default "cert-manager.io" }}/{{ .name }}
{{- end }}
{{- end }}
{{- with .caBundle }}
- {{ printf "--ca-bundle=%s" (trim .) | quote }}
{{- end }}
{{- end }}
- --metrics-bind-address=:{{ .Values.metrics.port }}
- --health-probe-bind-address=:{{ .Values.health.port }}
- --shutdown-delay={{ .Values.shutdownDelaySeconds }}s
- --helm-release={{ .Release.Name }}
{{- with include "sallyport.within" . }}
- --helm-values={{ . }}
{{- end }}
{{- $patchable := list }}
{{- range $resource, $extent := .Values.patchable }}
{{- with $extent }}
{{- $patchable = append $patchable (printf "%s=%s" $resource .) }}
{{- end }}
{{- end }}
- --patchable={{ join "," $patchable }}
- --test-run-timeout={{ mul .Values.webhook.timeoutSeconds 700 }}ms
- --test-run-memory={{ .Values.testRuns.memory }}
- --decision-records={{ .Values.decisionRecords.to }}
- --decision-records-all={{ .Values.decisionRecords.all }}
{{- if .Values.audits.reports }}
- --audit-reports=true
{{- end }}
{{- if .Values.rbac.policyReaders }}
- --audit-names=false
{{- end }}
{{- if .Values.readOnly }}
- --read-only=true
{{- end }}
{{- if .Values.diskImages.enabled }}
- --disk-images=true
{{- with .Values.diskImages.secretHosts }}
- --disk-image-secret-hosts={{ join "," . }}
{{- end }}
{{- end }}
{{- $disabled := include "sallyport.disabled" . | fromJson }}
{{- range $what, $flag := dict "vsphere" "vsphere-runtime" "virtualmachinepools" "pools" "vspheretemplates" "templates" "drains" "pod-drains" }}
{{- if hasKey $disabled $what }}
- --{{ $flag }}=false
{{- end }}
{{- end }}
{{- if .Values.runtimes.pod.enabled }}
- --pod-runtime=true
{{- $labels := list }}
{{- range $key, $value := include "sallyport.present" .Values.runtimes.pod.nodeSelector | fromYaml | default (dict "type" "virtual-kubelet") }}
{{- $labels = append $labels (printf "%s=%s" $key $value) }}
{{- end }}
- --pod-node-selector={{ join "," $labels }}
{{- with .Values.runtimes.pod.snapshots.repository }}
- --pod-snapshot-repository={{ . }}
{{- end }}
{{- with .Values.runtimes.pod.snapshots.tokenHosts }}
{{- if not $.Values.runtimes.pod.snapshots.repository }}
{{- fail "runtimes.pod.snapshots.tokenHosts needs runtimes.pod.snapshots.repository" }}
{{- end }}
- --pod-snapshot-token-hosts={{ join "," . }}
{{- end }}
{{- if include "sallyport.snapshotCAConfigMap" . }}
- --pod-snapshot-ca-file=/etc/sallyport/snapshots/ca.crt
{{- end }}
{{- end }}
{{- if include "sallyport.kubevirt" . }}
- --kubevirt-runtime=true
{{- end }}
{{- if not (kindIs "invalid" .Values.runtimes.uncopiedLabels) }}
- --uncopied-labels={{ join "," .Values.runtimes.uncopiedLabels }}
{{- end }}
- --template-forbidden-ranges={{ join "," .Values.templates.forbiddenRanges }}
{{- range $flag, $value := dict
  "lease-duration" .Values.leaderElection.leaseDuration
  "renew-deadline" .Values.leaderElection.renewDeadline
  "retry-period" .Values.leaderElection.retryPeriod
  "runtime-call-timeout" .Values.runtimes.callTimeout
  "poll-interval" .Values.runtimes.pollInterval
  "resync-interval" .Values.runtimes.resyncInterval
  "audit-interval" .Values.audits.interval }}
{{- with $value }}
- --{{ $flag }}={{ . }}
{{- end }}
{{- end }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}
