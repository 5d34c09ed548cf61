package charts_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestLint(t *testing.T) {
	program := helmProgram(t)
	for _, text := range []string{"", everything, nothing} {
		out, err := exec.CommandContext(t.Context(), program, "lint", "--strict", chart(t), "-f", values(t, text)).CombinedOutput()
		if err != nil || strings.Contains(string(out), "[WARNING]") {
			t.Errorf("helm lint with %q: %v\n%s", text, err, out)
		}
	}
}

// What is misspelt, of the wrong type or out of bounds is refused, and its place is said.
func TestSchemaRefuses(t *testing.T) {
	for text, wanted := range together(map[string]string{
		"replica: 3":                                      "'replica' not allowed",
		"image: {digest: latest}":                         "/image/digest",
		"image: {pullPolicy: always}":                     "/image/pullPolicy",
		"runtimes: {pod: {nodeSelector: {type: 1}}}":      "/runtimes/pod/nodeSelector",
		"replicas: 0":                                     "/replicas",
		"replicas: two":                                   "/replicas",
		"policies: {defaults: {mod: Warn}}":               "at '/policies/defaults': additional properties 'mod' not allowed",
		"policies: {defaults: {mode: warn}}":              "/policies/defaults/mode",
		"policies: {a: {match: {resources: []}}}":         "at '/policies/a/match/resources': minItems",
		"policies: {a: {timeoutMilliseconds: 1}}":         "/policies/a/timeoutMilliseconds",
		"policies: {a: {parameters: [1]}}":                "/policies/a/parameters",
		"policies: {a: {override: users}}":                "/policies/a/override",
		"policies: {a: {namespaceModes: [{mode: Warn}]}}": "'namespaceSelector'",
		"policies: {a: {namespaceModes: [{mode: Warn, namespaceSelector: null}]}}":       "/policies/a/namespaceModes/0/namespaceSelector",
		"policies: {a: {namespaceModes: [{mode: Off, namespaceSelector: {}}]}}":          "/policies/a/namespaceModes/0/mode",
		"policies: {a: {modules: [{name: a}]}}":                                          "/policies/a/modules/0",
		"exclusions: {users: a}":                                                         "/exclusions/users",
		"webhook: {failurePolicy: fail}":                                                 "/webhook/failurePolicy",
		"webhook: {timeoutSeconds: 10}":                                                  "/webhook/timeoutSeconds",
		"webhook: {clientCA: /etc/ca.crt}":                                               "/webhook/clientCA",
		"webhook: {clientCAConfigMap: Not a name}":                                       "/webhook/clientCAConfigMap",
		`webhook: {clientNames: ["a,b"]}`:                                                "/webhook/clientNames/0",
		"networkPolicy: {webhookFrom: [10.0.0.0/8]}":                                     "/networkPolicy/webhookFrom/0",
		"leaderElection: {leaseDuration: 15}":                                            "/leaderElection/leaseDuration",
		"leaderElection: {leaseDuration: 15sec}":                                         "/leaderElection/leaseDuration",
		"patchable: {pods: Spec}":                                                        "/patchable/pods",
		"patchable: {secrets: All}":                                                      "invalid propertyName 'secrets'",
		"patchable: {clusterroles.rbac.authorization.k8s.io: Metadata}":                  "invalid propertyName 'clusterroles.rbac.authorization.k8s.io'",
		"patchable: {serviceaccounts/token: All}":                                        "invalid propertyName 'serviceaccounts/token'",
		`patchable: {"*": Metadata}`:                                                     "invalid propertyName '*'",
		"testRuns: {memory: 256}":                                                        "/testRuns/memory",
		"decisionRecords: {to: stderr}":                                                  "/decisionRecords/to",
		"extraArgs: [manager]":                                                           "/extraArgs/0",
		"rbac: {extraRules: [{verbs: [get]}]}":                                           "/rbac/extraRules/0",
		"rbac: {cloudInitSecrets: [team-*]}":                                             "/rbac/cloudInitSecrets/0",
		"rbac: {snapshotSecrets: [team-*]}":                                              "/rbac/snapshotSecrets/0",
		"runtimes: {pod: {snapshots: {repository: \"https://registry.example.com/m\"}}}": "/runtimes/pod/snapshots/repository",
		"runtimes: {pod: {snapshots: {tokenHosts: [\"https://a\"]}}}":                    "/runtimes/pod/snapshots/tokenHosts",
		"rbac: {imageSecrets: [team-*]}":                                                 "/rbac/imageSecrets/0",
		"diskImages: {secretHosts: [\"https://a\"]}":                                     "/diskImages/secretHosts/0",
		"diskImages: {secretHosts: [a@b]}":                                               "/diskImages/secretHosts/0",
		"runtimes: {pod: {snapshots: {caConfigMap: Not a name}}}":                        "/runtimes/pod/snapshots/caConfigMap",
		"rbac: {cloudInitSecrets: {team-a: true}}":                                       "/rbac/cloudInitSecrets",
		`rbac: {reads: {"*": true}}`:                                                     "at '/rbac/reads': additional properties '*' not allowed",
		`rbac: {reads: {pods/log: true}}`:                                                "'pods/log' not allowed",
		`rbac: {reads: {pods: get}}`:                                                     "/rbac/reads/pods",
		"podDisruptionBudget: {minAvailable: x}":                                         "/podDisruptionBudget/minAvailable",
	}) {
		_, err := template(t, release, chart(t), text)
		for _, want := range wanted {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, which does not say %q", text, err, want)
			}
		}
	}
}

// together joins values that have no key in common: Helm says at once what is wrong with all of them.
func together(each map[string]string) map[string][]string {
	var texts []string
	rank := map[string]int{} // how many there were of a key
	for _, text := range slices.Sorted(maps.Keys(each)) {
		key, _, _ := strings.Cut(text, ":")
		if rank[key] == len(texts) {
			texts = append(texts, "")
		}
		texts[rank[key]] += text + "\n"
		rank[key]++
	}
	joined := map[string][]string{}
	for _, text := range texts {
		for one := range strings.Lines(text) {
			joined[text] = append(joined[text], each[strings.TrimSuffix(one, "\n")])
		}
	}
	return joined
}

// Values that are each right and cannot be together.
func TestContradictionsAreRefused(t *testing.T) {
	refusals := map[string]string{
		"replicas: 1":                                                    "podDisruptionBudget.minAvailable is 1 with replicas 1: no node",
		"podDisruptionBudget: {minAvailable: 2}":                         "podDisruptionBudget.minAvailable is 2 with replicas 2: no node",
		"podDisruptionBudget: {minAvailable: 3}":                         "podDisruptionBudget.minAvailable is 3",
		"{replicas: 1, podDisruptionBudget: {minAvailable: 50%}}":        "podDisruptionBudget.minAvailable is 50% with replicas 1",
		"podDisruptionBudget: {minAvailable: 100%}":                      "podDisruptionBudget.minAvailable is 100%",
		"podDisruptionBudget: {minAvailable: null}":                      "one of minAvailable and maxUnavailable",
		"podDisruptionBudget: {maxUnavailable: 1}":                       "one of minAvailable and maxUnavailable",
		"podDisruptionBudget: {minAvailable: null, maxUnavailable: 0}":   "podDisruptionBudget.maxUnavailable is 0",
		"shutdownDelaySeconds: 11":                                       "terminationGracePeriodSeconds is 60 but must be at least 61",
		"serviceAccount: {create: false}":                                "serviceAccount.name is required",
		"health: {port: 8080}":                                           "metrics.port and health.port are both 8080",
		"runtimes: {pod: {enabled: true, snapshots: {tokenHosts: [a]}}}": "runtimes.pod.snapshots.tokenHosts needs runtimes.pod.snapshots.repository",
		"runtimes: {pod: {snapshots: {caConfigMap: a}}}":                 "runtimes.pod.snapshots.caConfigMap needs runtimes.pod.snapshots.repository",
		"webhook: {clientNames: [kube-apiserver]}":                       "webhook.clientNames needs webhook.clientCA or webhook.clientCAConfigMap",
		"webhook: {clientCA: \"-----BEGIN CERTIFICATE-----\\nx\\n-----END CERTIFICATE-----\\n\", clientCAConfigMap: a}":                                         "either clientCA (PEM text) or clientCAConfigMap",
		"webhook: {clientCA: \"-----BEGIN PRIVATE KEY-----\\nx\\n-----END PRIVATE KEY-----\\n-----BEGIN CERTIFICATE-----\\nx\\n-----END CERTIFICATE-----\\n\"}": "webhook.clientCA contains a private key",
		"certs: {mode: existing}":                          "certs.mode=existing needs certs.existingSecret",
		"certs: {existingSecret: sallyport-certificate}":   "certs.existingSecret=sallyport-certificate is the name of a Secret that another mode writes",
		"certs: {existingSecret: sallyport-webhook-tls}":   "certs.existingSecret=sallyport-webhook-tls is the name of a Secret that another mode writes",
		"certs: {caBundle: cainjector}":                    "certs.caBundle=cainjector needs certs.mode cert-manager or existing, but it is auto",
		"certs: {mode: self-signed, caBundle: cainjector}": "but it is self-signed",
		"certs: {caBundle: \"-----BEGIN CERTIFICATE-----\\nx\\n-----BEGIN PRIVATE KEY-----\\nx\\n-----END CERTIFICATE-----\"}": "certs.caBundle contains a private key",
		"webhook: {timeoutSeconds: 2}":                       "timeoutMilliseconds is 2000, but must be less than webhook.timeoutSeconds (2)",
		"policies: {operations-superseed: {mode: Warn}}":     "policies.operations-superseed: this release has no such policy; it ships defaults, deletion-cascade, ",
		"policies: {lib-operations: {mode: Warn}}":           "policies.lib-operations.mode: lib-operations is a library",
		"policies: {lib-operations: {enabled: false}}":       "policies.lib-operations.enabled: lib-operations is a library",
		"policies: {defaults: {enabled: false}}":             "policies.defaults: it cannot be disabled",
		"policies: {lib-operations: {override: Nobody}}":     "policies.lib-operations.override: lib-operations is a library",
		"policies: {defaults: {override: Users}}":            "policies.defaults.override: it cannot be overridden",
		"policies: {defaults: {match: {excludeUsers: [a]}}}": "policies.defaults: it cannot be disabled or limited",
		"policies: {defaults: {mode: Warn}}":                 "policies.defaults.mode: must be Enforce, not Warn: if it could not be evaluated, an operation would be admitted",
		"policies: {defaults: {mode: Audit}}":                "policies.defaults.mode: must be Enforce, not Audit",
		"policies: {defaults: {onError: Allow}}":             "policies.defaults.onError: must be Deny: if it could not be evaluated",
		"policies: {defaults: {namespaceModes: [{mode: Enforce, namespaceSelector: {}}, {mode: Audit, namespaceSelector: {matchLabels: {a: b}}}]}}": "policies.defaults.namespaceModes[1].mode: must be Enforce, not Audit",
	}
	inShort := []string{
		"replicas: 1", "podDisruptionBudget: {maxUnavailable: 1}", "webhook: {clientNames: [kube-apiserver]}", "certs: {mode: existing}",
		"policies: {operations-superseed: {mode: Warn}}", "policies: {defaults: {onError: Allow}}",
	}
	for text, want := range refusals {
		if testing.Short() && !slices.Contains(inShort, text) {
			continue
		}
		_, err := template(t, release, chart(t), text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, which does not say %q", text, err, want)
		}
	}
	for _, text := range []string{
		"{replicas: 1, podDisruptionBudget: {enabled: false}}",
		"{replicas: 1, podDisruptionBudget: {minAvailable: null, maxUnavailable: 1}}",
		"{replicas: 2, podDisruptionBudget: {minAvailable: 50%}}",
		"{shutdownDelaySeconds: 0, terminationGracePeriodSeconds: 50}",
		"policies: {defaults: {mode: Enforce, onError: Deny, override: Nobody, namespaceModes: [{mode: Enforce, namespaceSelector: {}}]}}",
		"policies: {defaults: {mode: null, onError: null, override: null, namespaceModes: null, timeoutMilliseconds: 1000}}",
	} {
		if _, err := template(t, release, chart(t), text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A policy that reads a kind whose resource the chart does not know must not be shipped without the right to read it.
func TestUnknownReadIsRefused(t *testing.T) {
	dir := chart(t)
	file := filepath.Join(dir, "files", "policies", "servers-tenancy.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "kind: Namespace", "kind: Gadget", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := template(t, release, dir, ""); err == nil || !strings.Contains(err.Error(), "policy servers-tenancy reads v1/Gadget") {
		t.Errorf("helm template: %v", err)
	}
}
