package charts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// everything turns on what is off, and gives a value to what has none.
const everything = `
nameOverride: gate
commonLabels: {team: fleet}
commonAnnotations: {example.com/note: "1"}
global: {imageRegistry: mirror.example.com, imagePullSecrets: [{name: mirror}]}
replicas: 3
image: {digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
imagePullSecrets: [ours]
shutdownDelaySeconds: 9
leaderElection: {leaseDuration: 30s, renewDeadline: 20s, retryPeriod: 3s}
runtimes: {callTimeout: 6s, pollInterval: 1s, resyncInterval: 1m, kubevirt: {enabled: true}, pod: {enabled: true, nodeSelector: {type: agent, zone: a}, snapshots: {repository: "registry.example.com:5000/machines", caConfigMap: registry, tokenHosts: [auth.example.com, "sso.example.com:8443"]}}}
decisionRecords: {to: /var/log/records, all: true}
testRuns: {memory: 512Mi}
audits: {interval: 15m, reports: true}
readOnly: true
diskImages: {enabled: true, secretHosts: [s3.example.org, "*.images.example.org:9000", "[2001:db8::1]"], networkPolicy: {namespaces: [default], except: [169.254.0.0/16, "fe80::/10"]}}
extraArgs: [--webhook-host=0.0.0.0]
extraEnv: [{name: A, value: b}]
extraVolumes: [{name: records, emptyDir: {}}]
extraVolumeMounts: [{name: records, mountPath: /var/log}]
extraContainers: [{name: tail, image: example.com/tail, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]
exclusions: {namespaces: [quiet], users: [robot], groups: [fleet-admins]}
floor: {enabled: true}
policies:
  operations-supersede: {mode: Warn, onError: Allow, timeoutMilliseconds: 1000, match: {namespaceSelector: {matchLabels: {a: b}}, excludeUsers: [x]}}
webhook: {failurePolicy: Ignore, timeoutSeconds: 4, clientCA: "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n", clientNames: [kube-apiserver, front-proxy], annotations: {a: b}, port: 10443, service: {port: 8443, annotations: {a: b}}}
metrics: {port: 9090, service: {port: 9091, annotations: {a: b}}, serviceMonitor: {enabled: true, labels: {prometheus: main}, interval: 30s, scrapeTimeout: 5s, relabelings: [{action: labeldrop, regex: pod}]}, prometheusRule: {enabled: true, labels: {prometheus: main}}}
health: {port: 9092, readinessProbe: {periodSeconds: 3}}
serviceAccount: {name: gatekeeper, annotations: {a: b}}
rbac: {reads: {pods: true, statefulsets.apps: true, secrets: false}, extraRules: [{apiGroups: [apps], resources: [deployments], verbs: [get, list, watch]}], cloudInitSecrets: [default, "*"], snapshotSecrets: [default, "*"], imageSecrets: [default, "*"]}
podLabels: {a: b}
podAnnotations: {a: b}
priorityClassName: system-cluster-critical
podSecurityContext: {runAsUser: null, runAsGroup: null}
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: a, operator: Exists}]
affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {a: b}}}}]}}
topologySpreadConstraints: [{topologyKey: rack, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}]
podDisruptionBudget: {minAvailable: null, maxUnavailable: 50%, unhealthyPodEvictionPolicy: IfHealthyBudget}
networkPolicy: {enabled: true, webhookFrom: [{ipBlock: {cidr: 10.0.0.0/28}}], metricsFrom: [{namespaceSelector: {matchLabels: {a: b}}}]}
`

// nothing turns off what is on.
const nothing = `
crds: {install: false}
serviceAccount: {create: false, name: theirs}
rbac: {create: false, aggregateRoles: false}
podDisruptionBudget: {enabled: false}
topologySpreadConstraints: []
`

// decoder reads Kubernetes' types, and refuses fields that they do not have.
func decoder(t *testing.T) runtime.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

func TestEveryObjectIsOfItsType(t *testing.T) {
	strict := decoder(t)
	for name, test := range map[string]struct {
		values string
		kinds  string // in their order, each once
	}{
		"by default": {"", "ClusterRole ClusterRoleBinding ConfigMap CustomResourceDefinition Deployment MutatingWebhookConfiguration " +
			"PodDisruptionBudget Role RoleBinding Service ServiceAccount ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration"},
		"everything": {everything, "ClusterRole ClusterRoleBinding ConfigMap CustomResourceDefinition Deployment MutatingWebhookConfiguration " +
			"NetworkPolicy PodDisruptionBudget PrometheusRule Role RoleBinding Service ServiceAccount ServiceMonitor " +
			"ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration"},
		"nothing": {nothing, "ConfigMap Deployment MutatingWebhookConfiguration Service ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration"},
	} {
		t.Run(name, func(t *testing.T) {
			var kinds []string
			for _, o := range render(t, test.values) {
				kinds = append(kinds, o.GetKind())
				if isOfPrometheus(o) { // a type that is not ours to have
					continue
				}
				text, err := o.MarshalJSON()
				if err != nil {
					t.Fatal(err)
				}
				if _, _, err := strict.Decode(text, nil, nil); err != nil {
					t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
				}
			}
			slices.Sort(kinds)
			if got := strings.Join(slices.Compact(kinds), " "); got != test.kinds {
				t.Errorf("kinds:\n%s, want\n%s", got, test.kinds)
			}
		})
	}
}

func TestEveryObjectIsLabelled(t *testing.T) {
	for _, o := range render(t, everything) {
		for label, want := range map[string]string{
			"app.kubernetes.io/name": "gate", "app.kubernetes.io/instance": "sallyport", "app.kubernetes.io/part-of": "sallyport",
			"app.kubernetes.io/managed-by": "Helm", "team": "fleet",
		} {
			if got := o.GetLabels()[label]; got != want {
				t.Errorf("%s %s has label %s=%q, not %q", o.GetKind(), o.GetName(), label, got, want)
			}
		}
		if o.GetAnnotations()["example.com/note"] != "1" {
			t.Errorf("%s %s lacks the common annotation", o.GetKind(), o.GetName())
		}
	}
}

func TestNames(t *testing.T) {
	for name, test := range map[string]struct {
		release, values string
		fullname        string
	}{
		"a release that says it":    {release, "", "sallyport"},
		"a release that does not":   {"gate", "", "gate-sallyport"},
		"fullnameOverride":          {release, "fullnameOverride: door", "door"},
		"nameOverride":              {release, "nameOverride: door", "sallyport-door"},
		"as long as a release's is": {strings.Repeat("a", 53), "", strings.Repeat("a", 51)},
	} {
		t.Run(name, func(t *testing.T) {
			all := renderAs(t, test.release, test.values)
			for _, wanted := range []struct{ kind, name string }{
				{"Deployment", test.fullname}, {"ServiceAccount", test.fullname}, {"ClusterRole", test.fullname}, {"Role", test.fullname},
				{"PodDisruptionBudget", test.fullname}, {"Service", test.fullname + "-webhook"}, {"Service", test.fullname + "-metrics"},
				{"ConfigMap", test.fullname + "-policies"}, {"ValidatingWebhookConfiguration", "sallyport"}, {"MutatingWebhookConfiguration", "sallyport"},
			} {
				if find(all, wanted.kind, wanted.name) == nil {
					t.Errorf("no %s %s", wanted.kind, wanted.name)
				}
			}
			validating := rendered[admissionregistrationv1.ValidatingWebhookConfiguration](t, all, "ValidatingWebhookConfiguration", "sallyport")
			if got := validating.Webhooks[0].ClientConfig.Service.Name; got != test.fullname+"-webhook" {
				t.Errorf("the webhooks are called at Service %s", got)
			}
		})
	}
}

func TestImage(t *testing.T) {
	const digest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for values, want := range map[string]string{
		"":                 "registry.sallyport.dev/sallyport:0.1.0",
		"image: {tag: v2}": "registry.sallyport.dev/sallyport:v2",
		"image: {tag: v2, digest: '" + digest + "'}": "registry.sallyport.dev/sallyport@" + digest,
		"image: {registry: '', repository: a/b}":     "a/b:0.1.0",
		"global: {imageRegistry: mirror:5000}":       "mirror:5000/sallyport:0.1.0",
	} {
		deployment := rendered[appsv1.Deployment](t, render(t, values), "Deployment", "sallyport")
		if got := deployment.Spec.Template.Spec.Containers[0].Image; got != want {
			t.Errorf("%q: image %s, not %s", values, got, want)
		}
	}
}

// Replicas that use the ports of nodes cannot be two on one, and nodes may be as many as replicas (openkruise, nri-kubernetes#356).
func TestStrategy(t *testing.T) {
	for values, want := range map[string]string{
		"":                  "RollingUpdate 0 1",
		"hostNetwork: true": "RollingUpdate 1 0",
		"{hostNetwork: true, strategy: {type: Recreate}}":                                    "Recreate",
		"strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 50%, maxSurge: 0}}": "RollingUpdate 50% 0",
	} {
		strategy := rendered[appsv1.Deployment](t, render(t, values), "Deployment", "sallyport").Spec.Strategy
		got := string(strategy.Type)
		if r := strategy.RollingUpdate; r != nil {
			got += " " + r.MaxUnavailable.String() + " " + r.MaxSurge.String()
		}
		if got != want {
			t.Errorf("%q: strategy %s, want %s", values, got, want)
		}
	}
}

func TestDefinitionsAreTheGenerated(t *testing.T) {
	all := render(t, "")
	want := definitions(t)
	for _, crd := range want {
		got := rendered[apiextensionsv1.CustomResourceDefinition](t, all, "CustomResourceDefinition", crd.Name)
		if got.Annotations["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s is not kept", crd.Name)
		}
		if diff := cmp.Diff(crd.Spec, got.Spec); diff != "" {
			t.Errorf("%s (-generated +rendered):\n%s", crd.Name, diff)
		}
	}
}

// The configurations that the binary knows are the chart's; what is another release's own is put in.
func TestWebhooksAreTheDocumented(t *testing.T) {
	mutating, validating := configurations(t)
	all := render(t, "")
	got := rendered[admissionregistrationv1.ValidatingWebhookConfiguration](t, all, "ValidatingWebhookConfiguration", "sallyport")
	if diff := cmp.Diff(validating.Webhooks, got.Webhooks); diff != "" {
		t.Errorf("validating (-file +rendered):\n%s", diff)
	}
	if diff := cmp.Diff(mutating.Webhooks, rendered[admissionregistrationv1.MutatingWebhookConfiguration](t, all, "MutatingWebhookConfiguration", "sallyport").Webhooks); diff != "" {
		t.Errorf("mutating (-file +rendered):\n%s", diff)
	}
	for _, want := range validating.Webhooks[1:] { // Both lists are of the same conditions, but for one more.
		if diff := cmp.Diff(mutating.Webhooks[0].MatchConditions, want.MatchConditions[:2]); diff != "" {
			t.Errorf("%s has other conditions than the mutating webhook:\n%s", want.Name, diff)
		}
	}

	all = renderAs(t, "gate", "{serviceAccount: {name: keeper}, webhook: {failurePolicy: Ignore, timeoutSeconds: 4, service: {port: 8443}}}")
	other := rendered[admissionregistrationv1.ValidatingWebhookConfiguration](t, all, "ValidatingWebhookConfiguration", "sallyport")
	for _, webhook := range other.Webhooks {
		service := webhook.ClientConfig.Service
		if service.Name != "gate-sallyport-webhook" || service.Namespace != namespace || *service.Port != 8443 || *service.Path != "/validate" ||
			*webhook.FailurePolicy != admissionregistrationv1.Ignore || *webhook.TimeoutSeconds != 4 {
			t.Errorf("%s of another release: %+v, %+v", webhook.Name, webhook, service)
		}
	}
	conditions := other.Webhooks[1].MatchConditions
	if want := "request.userInfo.username != 'system:serviceaccount:sallyport-system:keeper'"; conditions[len(conditions)-1].Expression != want {
		t.Errorf("another release leaves out by %q", conditions[len(conditions)-1].Expression)
	}
}

// rules gives the rules of a role of Sallyport's own.
func rules(t *testing.T, all []*unstructured.Unstructured, kind, name string) []rbacv1.PolicyRule {
	t.Helper()
	if kind == "Role" {
		return rendered[rbacv1.Role](t, all, kind, name).Rules
	}
	return rendered[rbacv1.ClusterRole](t, all, kind, name).Rules
}

func TestRightsAreNarrow(t *testing.T) {
	all := render(t, "")
	for _, role := range []struct{ kind, name string }{
		{"ClusterRole", "sallyport"}, {"Role", "sallyport"}, {"ClusterRole", "sallyport-view"}, {"ClusterRole", "sallyport-edit"}, {"ClusterRole", "sallyport-policy-editor"},
	} {
		for _, rule := range rules(t, all, role.kind, role.name) {
			for _, words := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs} {
				for _, word := range words {
					if strings.Contains(word, "*") {
						t.Errorf("%s %s has a wildcard: %+v", role.kind, role.name, rule)
					}
				}
			}
			for _, dangerous := range []string{"escalate", "bind", "impersonate"} {
				if slices.Contains(rule.Verbs, dangerous) {
					t.Errorf("%s %s may %s", role.kind, role.name, dangerous)
				}
			}
			for _, local := range []string{"secrets", "configmaps", "leases", "controllerrevisions"} {
				marks := local == "leases" && slices.Equal(rule.Verbs, []string{"get", "list"}) // of busy machines
				if role.kind == "ClusterRole" && slices.Contains(rule.Resources, local) && !marks {
					t.Errorf("%s %s is about %s of every namespace", role.kind, role.name, local)
				}
			}
		}
	}
}

// By default, machines of KubeVirt are enabled if the cluster serves its API, and no rights are granted without them.
func TestRightsOnKubeVirt(t *testing.T) {
	for values, want := range map[string]bool{
		"": false, "runtimes: {kubevirt: {enabled: auto}}": false, "runtimes: {kubevirt: {enabled: false}}": false, "runtimes: {kubevirt: {enabled: true}}": true,
	} {
		all := render(t, values)
		granted := slices.ContainsFunc(rules(t, all, "ClusterRole", "sallyport"), func(r rbacv1.PolicyRule) bool {
			return slices.ContainsFunc(r.APIGroups, func(group string) bool { return strings.HasSuffix(group, "kubevirt.io") })
		})
		args := rendered[appsv1.Deployment](t, all, "Deployment", "sallyport").Spec.Template.Spec.Containers[0].Args
		if enabled := slices.Contains(args, "--kubevirt-runtime=true"); granted != want || enabled != want {
			t.Errorf("with %q granted %v, enabled %v, want %v", values, granted, enabled, want)
		}
	}
}

// Secrets of other namespaces can be read where that is asked for, by name, and nowhere by default.
func TestSecretsThatMachinesName(t *testing.T) {
	const pods = "runtimes: {pod: {enabled: true}}\n"
	for values, want := range map[string][]string{
		"":                                          nil,
		"rbac: {cloudInitSecrets: []}":              nil,
		"rbac: {cloudInitSecrets: [b, a, b]}":       {"Role b", "RoleBinding b", "Role a", "RoleBinding a"},
		`rbac: {cloudInitSecrets: ["*"]}`:           {"ClusterRole ", "ClusterRoleBinding "},
		"rbac: {snapshotSecrets: [a]}":              nil,
		pods + "rbac: {snapshotSecrets: [b, a, b]}": {"Role b", "RoleBinding b", "Role a", "RoleBinding a"},
		pods + `rbac: {snapshotSecrets: ["*"]}`:     {"ClusterRole ", "ClusterRoleBinding "},
		"rbac: {imageSecrets: [a]}":                 nil,
		"diskImages: {enabled: true}\nrbac: {imageSecrets: [b, a, b]}":              {"Role b", "RoleBinding b", "Role a", "RoleBinding a"},
		pods + "rbac: {create: false, snapshotSecrets: [a], cloudInitSecrets: [a]}": nil,
	} {
		name := "sallyport-cloud-init"
		if strings.Contains(values, "snapshot") {
			name = "sallyport-snapshots"
		}
		if strings.Contains(values, "imageSecrets") {
			name = "sallyport-images"
		}
		var got []string
		for _, o := range render(t, values) {
			if o.GetName() != name {
				continue
			}
			got = append(got, o.GetKind()+" "+o.GetNamespace())
			if rules, found, _ := unstructured.NestedSlice(o.Object, "rules"); found {
				want := []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"secrets"}, "verbs": []any{"get"}}}
				if diff := cmp.Diff(want, rules); diff != "" {
					t.Errorf("%s (-want +got):\n%s", o.GetKind(), diff)
				}
				continue
			}
			if subjects, _, _ := unstructured.NestedSlice(o.Object, "subjects"); len(subjects) != 1 ||
				!cmp.Equal(subjects[0], any(map[string]any{"kind": "ServiceAccount", "name": "sallyport", "namespace": namespace})) {
				t.Errorf("%s of %v", o.GetKind(), subjects)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("with %q there is %q, want %q", values, got, want)
		}
	}
}

// What policies read of others' kinds is granted as long as one of them is shipped, and not longer.
func TestRightsFollowWhatPoliciesRead(t *testing.T) {
	verbs := func(resource, values string) (granted []string) {
		for _, rule := range rules(t, render(t, values), "ClusterRole", "sallyport") {
			if slices.Contains(rule.Resources, resource) {
				granted = append(granted, rule.Verbs...)
			}
		}
		return granted
	}
	watched, listed := []string{"get", "list", "watch"}, []string{"get", "list"}
	const tenancy, protected = "servers-tenancy: {enabled: false}, servers-quota: {enabled: false}, templates-tenancy: {enabled: false}", "deletion-protected: {enabled: false}, deletion-references: {enabled: false}, images-references: {enabled: false}"
	for _, test := range []struct {
		resource, values string
		want             []string
	}{
		{"namespaces", "", watched}, // for servers-tenancy and servers-quota, also if another one only reads them live
		{"namespaces", "policies: {" + tenancy + "}", listed},
		{"namespaces", "policies: {" + tenancy + ", " + protected + "}", nil},
		{"namespaces", "policies: {" + tenancy + ", " + protected + ", operations-supersede: {match: {namespaceSelector: {matchLabels: {a: b}}}}}", watched},
		{"namespaces", "policies: {" + tenancy + ", operations-supersede: {namespaceModes: [{mode: Warn, namespaceSelector: {matchLabels: {a: b}}}]}}", watched},
		{"nodes", "", listed},
		{"nodes", "policies: {placement-migration: {enabled: false}}", nil},
		{"persistentvolumeclaims", "", listed},
		{"persistentvolumeclaims", "policies: {deletion-cascade: {enabled: false}}", nil},
	} {
		if got := verbs(test.resource, test.values); !slices.Equal(got, test.want) {
			t.Errorf("with %q of %s is granted %q, want %q", test.values, test.resource, got, test.want)
		}
	}
}

func TestEverythingElse(t *testing.T) {
	all := render(t, everything)
	deployment := rendered[appsv1.Deployment](t, all, "Deployment", "sallyport-gate")
	pod := deployment.Spec.Template.Spec
	for what, holds := range map[string]bool{
		"the Pod's labels":                  deployment.Spec.Template.Labels["a"] == "b",
		"labels by which pods are selected": deployment.Spec.Template.Labels["app.kubernetes.io/name"] == deployment.Spec.Selector.MatchLabels["app.kubernetes.io/name"],
		"the ServiceAccount":                pod.ServiceAccountName == "gatekeeper",
		"the digest":                        strings.HasPrefix(pod.Containers[0].Image, "mirror.example.com/sallyport@sha256:"),
		"both pull Secrets":                 slices.Equal(pod.ImagePullSecrets, []corev1.LocalObjectReference{{Name: "mirror"}, {Name: "ours"}}),
		"no user ID":                        pod.SecurityContext.RunAsUser == nil && pod.SecurityContext.RunAsGroup == nil && *pod.SecurityContext.RunAsNonRoot,
		"the container beside":              len(pod.Containers) == 2,
		"a labelSelector of one's own":      len(pod.TopologySpreadConstraints) == 1 && pod.TopologySpreadConstraints[0].LabelSelector.MatchLabels["a"] == "b",
		"extra arguments last":              pod.Containers[0].Args[len(pod.Containers[0].Args)-1] == "--webhook-host=0.0.0.0",
		"the names of clients":              slices.Contains(pod.Containers[0].Args, "--client-ca-file=/etc/sallyport/clients/ca.crt") && slices.Contains(pod.Containers[0].Args, "--client-names=kube-apiserver,front-proxy"),
		"the authority of clients":          pod.Volumes[0].ConfigMap != nil && pod.Volumes[0].ConfigMap.Name == "sallyport-gate-clients" && pod.Containers[0].VolumeMounts[0].MountPath == "/etc/sallyport/clients" && len(pod.Volumes) == 3,
		"the registry of snapshots":         slices.Contains(pod.Containers[0].Args, "--pod-snapshot-repository=registry.example.com:5000/machines") && slices.Contains(pod.Containers[0].Args, "--pod-snapshot-ca-file=/etc/sallyport/snapshots/ca.crt"),
		"the hosts of tokens":               slices.Contains(pod.Containers[0].Args, "--pod-snapshot-token-hosts=auth.example.com,sso.example.com:8443"),
		"the authority of the registry":     pod.Volumes[1].ConfigMap != nil && pod.Volumes[1].ConfigMap.Name == "registry" && pod.Containers[0].VolumeMounts[1].MountPath == "/etc/sallyport/snapshots",
		"the other readiness probe":         pod.Containers[0].ReadinessProbe.PeriodSeconds == 3 && pod.Containers[0].ReadinessProbe.FailureThreshold == 2,
	} {
		if !holds {
			text, _ := yaml.Marshal(deployment.Spec.Template)
			t.Errorf("not as asked for: %s\n%s", what, text)
		}
	}
	if ca := rendered[corev1.ConfigMap](t, all, "ConfigMap", "sallyport-gate-clients").Data["ca.crt"]; ca != "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n" {
		t.Errorf("the authority of clients is %q", ca)
	}
	ingress := rendered[networkingv1.NetworkPolicy](t, all, "NetworkPolicy", "sallyport-gate").Spec.Ingress
	if len(ingress) != 3 || len(ingress[0].From) != 1 || ingress[0].From[0].IPBlock == nil || len(ingress[1].From) != 0 || ingress[1].Ports[0].Port.StrVal != "health" {
		t.Errorf("ingress is from %+v", ingress)
	}
	extra := rules(t, all, "ClusterRole", "sallyport-gate")
	if last := extra[len(extra)-1]; !slices.Equal(last.Resources, []string{"deployments"}) {
		t.Errorf("extraRules are not last: %+v", last)
	}
}
