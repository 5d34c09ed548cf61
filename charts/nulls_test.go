package charts_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
)

// helm#12819: null removes a default, and Helm keeps it in the values of the release: the next upgrade with --reuse-values has it again,
// where there is no default any more. So whatever may be missing may be null. No object takes fields that it does not have.
func TestSchemaTakesNullForWhatMayBeMissing(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chart(t), "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	definitions := schema["definitions"].(map[string]any)
	nullable := func(of map[string]any) bool {
		if ref, ok := of["$ref"].(string); ok {
			of = definitions[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
		}
		values, isEnum := of["enum"].([]any)
		types, _ := of["type"].([]any)
		return isEnum && slices.Contains(values, nil) || slices.Contains(types, any("null")) || !isEnum && of["type"] == nil
	}
	var check func(path string, of map[string]any)
	check = func(path string, of map[string]any) {
		required, _ := of["required"].([]any)
		if of["properties"] != nil && of["additionalProperties"] == nil {
			t.Errorf("%s takes fields that it does not have, such as misspelt ones", path)
		}
		for _, kind := range []string{"properties", "patternProperties"} {
			properties, _ := of[kind].(map[string]any)
			for name, property := range properties {
				if !slices.Contains(required, any(name)) && !nullable(property.(map[string]any)) {
					t.Errorf("%s.%s takes no null", path, name)
				}
				check(path+"."+name, property.(map[string]any))
			}
		}
		if members, ok := of["additionalProperties"].(map[string]any); ok {
			if !nullable(members) {
				t.Errorf("%s.* takes no null", path)
			}
			check(path+".*", members)
		}
		if items, ok := of["items"].(map[string]any); ok {
			check(path+"[]", items)
		}
	}
	check("", schema)
	for name, definition := range definitions {
		check(name, definition.(map[string]any))
	}
}

// helm#12819: a member of a map that is null is none.
func TestMembersThatAreNullAreLeftOut(t *testing.T) {
	const (
		with = `
commonLabels: {a: b, none: null}
commonAnnotations: {a: b, none: null}
runtimes: {pod: {enabled: true, nodeSelector: {agent: "yes", none: null}}}
patchable: {widgets.example.com: null}
webhook: {annotations: {a: b, none: null}, service: {annotations: {a: b, none: null}}}
metrics: {service: {annotations: {none: null}}, serviceMonitor: {enabled: true, labels: {a: b, none: null}}}
health: {readinessProbe: {initialDelaySeconds: null, successThreshold: null}}
serviceAccount: {annotations: {none: null}}
rbac: {reads: {pods: true, widgets.example.com: null}}
podLabels: {a: b, none: null}
podAnnotations: {a: b, none: null}
resources: {limits: {memory: 1Gi, none: null}, none: null}
podSecurityContext: {none: null}
securityContext: {capabilities: {none: null}}
nodeSelector: {a: b, none: null}
policies: {operations-supersede: {parameters: {none: null}}}
`
		none = `
commonLabels: {a: b}
commonAnnotations: {a: b}
runtimes: {pod: {enabled: true, nodeSelector: {agent: "yes"}}}
webhook: {annotations: {a: b}, service: {annotations: {a: b}}}
metrics: {serviceMonitor: {enabled: true, labels: {a: b}}}
rbac: {reads: {pods: true}}
podLabels: {a: b}
podAnnotations: {a: b}
resources: {limits: {memory: 1Gi}}
nodeSelector: {a: b}
policies: {operations-supersede: {}}
`
	)
	got, want := render(t, with), render(t, none)
	for i := range want {
		if diff := cmp.Diff(want[i].Object, got[i].Object); diff != "" {
			t.Errorf("%s %s (-without +null):\n%s", want[i].GetKind(), want[i].GetName(), diff)
		}
	}
}

// A map that users replace as a whole has no entries of its own that would be merged with theirs (helm#12819).
func TestLabelsOfNodesAreReplaced(t *testing.T) {
	for values, want := range map[string]string{
		"{}":               "type=virtual-kubelet",
		"{agent: 'yes'}":   "agent=yes",
		"{type: null}":     "type=virtual-kubelet",
		"{a: b, type: me}": "a=b,type=me",
	} {
		d := rendered[appsv1.Deployment](t, render(t, "runtimes: {pod: {enabled: true, nodeSelector: "+values+"}}"), "Deployment", "sallyport")
		if args := d.Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--pod-node-selector="+want) {
			t.Errorf("%s: %q", values, args)
		}
	}
}

// helm#12819: an upgrade with a null, and one after it that keeps the values; and upgrades of a release whose Deployment somebody has scaled.
func TestUpgradesKeepNullsAndScale(t *testing.T) {
	if testing.Short() {
		t.Skip("left to make test-all")
	}
	c := newCluster(t)
	c.install(t)
	deployment := func() *appsv1.Deployment {
		t.Helper()
		d := &appsv1.Deployment{}
		c.get(t, d, namespace, "sallyport")
		return d
	}
	c.upgrade(t, "--reuse-values", "--set", "runtimes.pod.enabled=true", "--set", `runtimes.pod.nodeSelector.kubernetes\.io/os=linux`,
		"--set", "runtimes.pod.nodeSelector.type=null", "--set", "patchable.pods=null", "--set", "podSecurityContext.runAsUser=null",
		"--set", "health.readinessProbe.failureThreshold=null", "--set", "resources.requests.cpu=null", "--set", "audits.interval=null")
	first := deployment().Spec.Template.Spec
	// A release of an earlier chart has defaults of values that are not used any more, and --reuse-values passes them.
	c.upgrade(t, "--reuse-values", "--set", "templates.cacheSize=20Gi,templates.cacheClaim=", "--set-json", `rbac.reads={"fleets.example.com":true}`)
	if diff := cmp.Diff(first, deployment().Spec.Template.Spec); diff != "" {
		t.Errorf("nulls that were kept changed the Pods (-first +second):\n%s", diff)
	}
	args := first.Containers[0].Args
	if !slices.Contains(args, "--pod-node-selector=kubernetes.io/os=linux") || slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, "pods=Metadata") }) {
		t.Errorf("arguments: %q", args)
	}
	if _, some := first.Containers[0].Resources.Requests["cpu"]; some || first.SecurityContext.RunAsUser != nil {
		t.Errorf("resources %v, security context %v", slices.Collect(maps.Keys(first.Containers[0].Resources.Requests)), first.SecurityContext)
	}

	for _, replicas := range []string{"3", "4"} {
		if _, errOut, code := c.cp.Kubectl(t.Context(), "scale", "deployment/sallyport", "-n", namespace, "--replicas="+replicas); code != 0 {
			t.Fatal(errOut)
		}
		out := c.helm(t, "upgrade", release, chart(t), "-n", namespace, "--reuse-values")
		if want := "The Deployment was scaled to " + replicas + ", and stays so."; !strings.Contains(out, want) {
			t.Errorf("%s\nwant %q", out, want)
		}
	}
	if got := *deployment().Spec.Replicas; got != 4 {
		t.Errorf("%d replicas", got)
	}
	if _, errOut, code := c.cp.Kubectl(t.Context(), "scale", "deployment/sallyport", "-n", namespace, "--replicas=2"); code != 0 { // as NOTES say
		t.Fatal(errOut)
	}
	if out := c.helm(t, "upgrade", release, chart(t), "-n", namespace, "--reuse-values"); strings.Contains(out, "scaled to") {
		t.Error(out)
	}
}
