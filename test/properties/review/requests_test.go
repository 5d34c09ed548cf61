package review

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/offline"
)

// user is who makes a request.
type user struct {
	name, uid string
	groups    []string
	extra     map[string][]string
}

// info is the user as the API server knows one who is impersonated.
func (u user) info() authenticationv1.UserInfo {
	info := offline.UserNamed(u.name, u.groups...)
	info.UID = u.uid
	for key, values := range u.extra {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	return info
}

// request is one of those that are sent and reviewed.
type request struct {
	what       string
	operation  admissionv1.Operation
	object     map[string]any
	user       user
	validation offline.Validation
	// wording tells that the API server's version has other words for what it refuses, and why.
	wording string
}

var resources = map[string]string{
	"VirtualMachine": "virtualmachines", "VirtualMachineOperation": "virtualmachineoperations",
	"VirtualMachinePool": "virtualmachinepools", "VSphereServer": "vsphereservers", "RegoPolicy": "regopolicies",
}

func (r *request) name() string { return text(r.object, "metadata", "name") }

func (r *request) namespace() string {
	if kind := text(r.object, "kind"); kind == "VSphereServer" || kind == "RegoPolicy" {
		return ""
	}
	if namespace := text(r.object, "metadata", "namespace"); namespace != "" {
		return namespace
	}
	return "default"
}

// path is where the request goes to.
func (r *request) path() string {
	path := "/apis/" + v1alpha1.GroupVersion.String()
	if namespace := r.namespace(); namespace != "" {
		path += "/namespaces/" + namespace
	}
	path += "/" + resources[text(r.object, "kind")]
	if r.operation != admissionv1.Create {
		path += "/" + r.name()
	}
	if r.operation != admissionv1.Delete {
		path += "?fieldValidation=" + strings.ToUpper(string(r.validation[:1])) + string(r.validation[1:])
	}
	return path
}

func (r *request) body(t *testing.T) []byte {
	t.Helper()
	if r.operation == admissionv1.Delete {
		return nil
	}
	encoded, err := json.Marshal(r.object)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}

func text(object map[string]any, path ...string) string {
	found, _, _ := unstructured.NestedString(object, path...)
	return found
}

// parsed is JSON with comments left out, and numbers as the API server has them.
func parsed(t *testing.T, format string, args ...any) map[string]any {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(fmt.Appendf(nil, format, args...)); err != nil {
		t.Fatalf("%v in %s", err, fmt.Sprintf(format, args...))
	}
	return u.Object
}

// list collects requests.
type list struct {
	t   *testing.T
	all []request
}

func (l *list) add(what string, operation admissionv1.Operation, object map[string]any, change ...func(*request)) {
	r := request{what: what, operation: operation, object: object, user: user{name: "alice"}, validation: offline.Strict}
	for _, c := range change {
		c(&r)
	}
	l.all = append(l.all, r)
}

func by(u user) func(*request) { return func(r *request) { r.user = u } }

func validated(v offline.Validation) func(*request) { return func(r *request) { r.validation = v } }

func in(namespace string) func(*request) {
	return func(r *request) { r.object["metadata"].(map[string]any)["namespace"] = namespace }
}

func (l *list) operation(name, spec string) map[string]any {
	metadata := fmt.Sprintf(`"name": %q`, name)
	if strings.HasSuffix(name, "-") {
		metadata = fmt.Sprintf(`"generateName": %q`, name)
	}
	return parsed(l.t, `{"apiVersion": %q, "kind": "VirtualMachineOperation", "metadata": {%s, "namespace": "gold"}, "spec": %s}`,
		v1alpha1.GroupVersion, metadata, spec)
}

func (l *list) machine(name, spec string) map[string]any {
	return parsed(l.t, `{"apiVersion": %q, "kind": "VirtualMachine", "metadata": {"name": %q, "namespace": "gold"}, "spec": %s}`,
		v1alpha1.GroupVersion, name, spec)
}

func (l *list) pool(name, template, more string) map[string]any {
	return parsed(l.t, `{"apiVersion": %q, "kind": "VirtualMachinePool", "metadata": {"name": %q, "namespace": "gold"}, "spec": {
		"virtualMachineTemplate": {"spec": {"runtime": %s}}%s}}`, v1alpha1.GroupVersion, name, template, more)
}

// with sets a field; nil takes it away.
func with(object map[string]any, value any, path ...string) map[string]any {
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(object)}
	if value == nil {
		unstructured.RemoveNestedField(u.Object, path...)
	} else if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
		panic(err)
	}
	return u.Object
}

// phases that machines of the world are in.
var phases = []string{
	"Pending", "Provisioning", "Stopped", "Starting", "Running", "Stopping", "Migrating", "Paused", "Failed",
}

// forms of operations.
var forms = []string{
	`"type": "Start"`, `"type": "Stop"`, `"type": "Stop", "force": true`, `"type": "Restart"`, `"type": "Restart", "force": true`,
	`"type": "Migrate"`, `"type": "Migrate", "force": true, "migrate": {"nodeName": "b"}`, `"type": "Evict"`, `"type": "Evict", "force": true`,
}

// matrix asks for every operation in every phase. What is admitted stays, and bars what comes after it.
func (l *list) matrix() {
	for i, phase := range phases {
		for j, form := range forms {
			name := fmt.Sprintf("m-%d-%d", i, j)
			l.add(form+" while "+phase, admissionv1.Create,
				l.operation(name, fmt.Sprintf(`{"virtualMachineName": %q, %s}`, strings.ToLower(phase), form)))
		}
	}
	for i, vm := range []string{"always", "off", "held", "undoing", "leaving", "deleting", "nobody"} {
		for j, form := range forms[:4] {
			l.add(form+" of "+vm, admissionv1.Create, l.operation(fmt.Sprintf("v-%d-%d", i, j), fmt.Sprintf(`{"virtualMachineName": %q, %s}`, vm, form)))
		}
	}
}

// stop is an operation that nothing speaks against but what a test changes.
func (l *list) stop(name string) map[string]any {
	return l.operation(name, `{"virtualMachineName": "free", "type": "Stop"}`)
}

// badOperations are refused by decoding, metadata, schema or CEL; some are not.
func (l *list) badOperations() {
	for _, tc := range []struct {
		value any
		path  string
	}{
		{nil, "spec.type"}, {"", "spec.type"}, {int64(7), "spec.type"}, {"Explode", "spec.type"}, {[]any{"Stop"}, "spec.type"}, {map[string]any{}, "spec.type"},
		{nil, "spec.virtualMachineName"}, {"", "spec.virtualMachineName"}, {int64(1), "spec.virtualMachineName"}, {"No Name", "spec.virtualMachineName"},
		{strings.Repeat("a", 254), "spec.virtualMachineName"}, {strings.Repeat("a", 80), "spec.virtualMachineName"},
		{"true", "spec.force"}, {true, "spec.force"}, {int64(0), "spec.activeDeadlineSeconds"}, {int64(60), "spec.activeDeadlineSeconds"},
		{"long", "spec.activeDeadlineSeconds"}, {int64(-1), "spec.ttlSecondsAfterFinished"}, {1.5, "spec.ttlSecondsAfterFinished"},
		{map[string]any{"nodeName": "b"}, "spec.migrate"}, {map[string]any{}, "spec.migrate"}, {"x", "spec.migrate"},
		{"forged", "spec.virtualMachineUID"}, {"forged", "spec.override"}, {"2001-01-01T00:00:00Z", "spec.requestedAt"},
		{map[string]any{"username": "forged"}, "spec.requestedBy"}, {"forged", "spec.requestedBy"}, {nil, "spec"}, {"x", "spec"}, {[]any{}, "spec"},
		{map[string]any{"a": "b"}, "metadata.labels"}, {map[string]any{"a": int64(1)}, "metadata.labels"}, {map[string]any{"a b": "c"}, "metadata.labels"},
		{map[string]any{"a": "b c"}, "metadata.labels"}, {"x", "metadata.labels"}, {map[string]any{"sallyport.dev/virtual-machine": "other"}, "metadata.labels"},
		{map[string]any{"sallyport.dev/note": "x"}, "metadata.annotations"}, {map[string]any{"a b": "c"}, "metadata.annotations"},
		{[]any{"mine"}, "metadata.finalizers"}, {[]any{"a.b"}, "metadata.finalizers"}, {[]any{"a/b/c"}, "metadata.finalizers"}, {[]any{"example.com/a", "kubernetes"}, "metadata.finalizers"},
		{"Upper", "metadata.name"}, {"a/b", "metadata.name"}, {strings.Repeat("a", 254), "metadata.name"}, {nil, "metadata.name"},
		{"x", "metadata.uid"}, {"2001-01-01T00:00:00Z", "metadata.deletionTimestamp"}, {"yesterday", "metadata.creationTimestamp"}, {"7", "metadata.resourceVersion"},
		{int64(9), "metadata.generation"}, {"x", "metadata.colour"}, {"x", "spec.colour"}, {"x", "colour"},
		{[]any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u"}}, "metadata.ownerReferences"},
		{map[string]any{"phase": "Completed"}, "status"}, {map[string]any{"phase": "Done"}, "status"}, {"x", "status"},
	} {
		encoded, _ := json.Marshal(tc.value)
		what := fmt.Sprintf("an operation with %s: %.40s", tc.path, encoded)
		name := fmt.Sprintf("bad-%d", len(l.all))
		l.add(what, admissionv1.Create, with(l.stop(name), tc.value, strings.Split(tc.path, ".")...))
	}
	l.add("an owner without a UID", admissionv1.Create,
		with(l.stop("owned"), []any{map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "a"}}, "metadata", "ownerReferences"),
		func(r *request) {
			r.wording = "metadata is validated by the version of apimachinery that we are built with, which names the index of an owner"
		})
	for _, v := range []offline.Validation{offline.Warn, offline.Ignore} {
		l.add("unknown fields, "+string(v), admissionv1.Create, with(with(l.stop("unknown-"+string(v)), "x", "spec", "colour"), "x", "metadata", "colour"), validated(v))
	}
	l.add("a made name", admissionv1.Create, l.stop("made-"))
	l.add("a made name, refused by CEL", admissionv1.Create, with(with(l.stop("made-"), "Start", "spec", "type"), true, "spec", "force"))
	l.add("a made name, refused by a policy", admissionv1.Create, with(l.stop("made-"), "Start", "spec", "type"))
	l.add("a namespace that there is not", admissionv1.Create, l.stop("nowhere"), in("nowhere"))
	l.add("a namespace that is terminating", admissionv1.Create, l.stop("nowhere"), in("ending"))
	l.add("another namespace", admissionv1.Create, l.stop("elsewhere"), in("silver"))
	l.add("a name that is taken", admissionv1.Create, l.operation("done", `{"virtualMachineName": "running", "type": "Restart", "force": true}`))
}

// users ask for the same.
func (l *list) users() {
	for i, u := range []user{
		{name: "bob", groups: []string{"dev", "ops"}}, {name: "carol", uid: "1234", groups: []string{"dev"}},
		{name: "dora", groups: []string{"dev"}, extra: map[string][]string{"example.com/ticket": {"42", "43"}}},
		{name: "system:serviceaccount:gold:robot"}, {name: "system:serviceaccount:gold:robot", groups: []string{"robots"}}, {name: "erin", groups: []string{"system:masters"}},
	} {
		l.add("a stop by "+u.name, admissionv1.Create, l.operation(fmt.Sprintf("user-%d", i), fmt.Sprintf(`{"virtualMachineName": "user-%d", "type": "Stop"}`, i)), by(u))
	}
}

// machines are created and changed.
func (l *list) machines() {
	vsphere := func(rest string) string { return `{"runtime": {"vsphere": {"serverRef": {"name": "vc"}` + rest + `}}}` }
	for i, tc := range []struct{ namespace, spec string }{
		{"gold", `{"runtime": {"pod": {}}}`}, {"gold", `{"runtime": {"kubevirt": {}}, "runPolicy": "AlwaysOn"}`}, {"gold", `{}`}, {"gold", `{"runtime": {}}`},
		{"gold", `{"runtime": {"pod": {}, "kubevirt": {}}}`}, {"gold", `{"runtime": {"pod": {}}, "runPolicy": "Sometimes"}`},
		{"gold", `{"runtime": {"pod": {}}, "terminationGracePeriodSeconds": -1}`}, {"gold", `{"runtime": {"pod": null}}`}, {"gold", `{"runtime": null}`},
		{"gold", vsphere(``)}, {"gold", vsphere(`, "inventoryPath": "/DC0/vm/gold/a"`)}, {"gold", vsphere(`, "inventoryPath": "/DC0/vm/silver/a"`)},
		{"gold", vsphere(`, "inventoryPath": "/DC0/vm/gold/../a"`)}, {"gold", vsphere(`, "inventoryPath": "DC0/vm/gold/a"`)},
		{"gold", vsphere(`, "inventoryPath": "/DC0/vm/gold/a%2"`)}, {"gold", vsphere(`, "instanceUUID": "50120a8b-7a3c-4bde-9f00-0123456789ab"`)},
		{"gold", vsphere(`, "instanceUUID": "none"`)}, {"gold", `{"runtime": {"vsphere": {"serverRef": {"name": "nobody"}, "inventoryPath": "/a/b"}}}`},
		{"gold", `{"runtime": {"vsphere": {"inventoryPath": "/a/b"}}}`}, {"silver", vsphere(`, "inventoryPath": "/DC0/vm/silver/a"`)},
		{"silver", vsphere(`, "inventoryPath": "/DC0/vm/gold/a"`)}, {"default", vsphere(`, "inventoryPath": "/DC0/vm/gold/a"`)},
		// controller-runtime#1032, argo-workflows#3677: what Go does not decode, or for minutes.
		{"gold", `{"runtime": {"pod": {}}, "memory": "1.5Gi"}`}, {"gold", `{"runtime": {"pod": {}}, "memory": 1073741824}`}, {"gold", `{"runtime": {"pod": {}}, "memory": "1e1.5"}`},
		{"gold", `{"runtime": {"pod": {}}, "memory": "1e-2000000000"}`}, {"gold", `{"runtime": {"pod": {}}, "memory": "1e99999999999999999999"}`},
		{"gold", `{"runtime": {"pod": {}}, "memory": 1e300}`}, {"gold", `{"runtime": {"pod": {}}, "memory": 1.5}`}, {"gold", `{"runtime": {"pod": {}}, "memory": "0m"}`},
	} {
		l.add("a machine "+tc.spec, admissionv1.Create, l.machine(fmt.Sprintf("new-%d", i), tc.spec), in(tc.namespace))
	}
	l.add("a machine with finalizers", admissionv1.Create, with(l.machine("finalized", `{"runtime": {"pod": {}}}`), []any{"example.com/a", "mine"}, "metadata", "finalizers"))
	l.add("a machine with status", admissionv1.Create, with(l.machine("staged", `{"runtime": {"pod": {}}}`), "Running", "status", "phase"))
	l.add("a machine with a note", admissionv1.Create, with(l.machine("noted", `{"runtime": {"pod": {}}}`), "x", "metadata", "annotations", "example.com/noted"))
	l.add("a machine with odd numbers", admissionv1.Create, with(l.machine("odd", `{"runtime": {"pod": {}}}`), "seven", "metadata", "annotations", "example.com/odd"))
}

// pools are created; updates has changes of one.
func (l *list) pools() {
	const pod, explicit = `{"pod": {}}`, `, "scaleDownPolicy": "Explicit"`
	clone := func(folder string) string {
		return fmt.Sprintf(`{"vsphere": {"serverRef": {"name": "vc"}, "clone": {"folder": %q, "resourcePool": "/DC0/host/c/Resources",
			"datastore": "/DC0/datastore/d", "networks": ["/DC0/network/n"], "template": {"inventoryPath": "/DC0/vm/t"}}}}`, folder)
	}
	for i, tc := range []struct{ template, more string }{
		{pod, explicit}, {pod, ``}, {pod, explicit + `, "replicas": 5001`}, {pod, explicit + `, "replicas": 3, "rollout": {"maxUnavailable": "0%"}`},
		{pod, explicit + `, "rollout": {"followTemplate": true}`},
		{`{}`, explicit}, {`{"vsphere": {"serverRef": {"name": "vc"}, "inventoryPath": "/DC0/vm/gold/a"}}`, explicit},
		{strings.Replace(clone("/DC0/vm/gold/a"), `"datastore": "/DC0/datastore/d"`, `"storagePolicy": "gold"`, 1), explicit},
		{clone("/DC0/vm/silver"), explicit}, {clone("/DC0/vm/gold/../a"), explicit}, {`{"vsphere": {"serverRef": {"name": "nobody"}}}`, explicit},
	} {
		l.add("a pool "+tc.template+tc.more, admissionv1.Create, l.pool(fmt.Sprintf("new-%d", i), tc.template, tc.more))
	}
	l.add("a pool with a dot in its name", admissionv1.Create, l.pool("a.b", pod, explicit))
}

// changed is an object of the world with a change, without what only the cluster knows; kubectl replace adds the version.
type changed struct {
	what, kind, name string
	change           func(object map[string]any) map[string]any
	by               []func(*request) // who asks, if that matters
}

func set(value any, path ...string) func(map[string]any) map[string]any {
	return func(o map[string]any) map[string]any { return with(o, value, path...) }
}

// updates of objects that are there.
func updates() []changed {
	overrider := user{name: "olga", groups: []string{"overriders"}}
	return []changed{
		{what: "nothing", name: "free", change: set(nil, "metadata", "nothing")},
		{what: "a run policy", name: "free", change: set("Manual", "spec", "runPolicy")},
		{what: "an unknown run policy", name: "free", change: set("Sometimes", "spec", "runPolicy")},
		{what: "another runtime", name: "free", change: set(map[string]any{"kubevirt": map[string]any{}}, "spec", "runtime")},
		{what: "no runtime", name: "free", change: set(nil, "spec", "runtime")},
		{what: "a label", name: "free", change: set("x", "metadata", "labels", "team")},
		{what: "a label that is none", name: "free", change: set("x y", "metadata", "labels", "team")},
		{what: "a foreign annotation", name: "free", change: set("x", "metadata", "annotations", "example.com/note")},
		{what: "our annotation", name: "free", change: set("x", "metadata", "annotations", "sallyport.dev/note")},
		{what: "status", name: "free", change: set("Failed", "status", "phase")},
		{what: "no finalizers", name: "free", change: set(nil, "metadata", "finalizers")},
		{what: "a finalizer more", name: "free", change: set([]any{"mine"}, "metadata", "finalizers")},
		{what: "an unknown field", name: "free", change: set("x", "spec", "colour")},
		{what: "a UID of another", name: "free", change: set("11111111-1111-4111-8111-111111111111", "metadata", "uid")},
		{what: "an old version", name: "free", change: set("1", "metadata", "resourceVersion")},
		{what: "a deletion time", name: "free", change: set("2001-01-01T00:00:00Z", "metadata", "deletionTimestamp")},
		{what: "a creation time", name: "free", change: set("2001-01-01T00:00:00Z", "metadata", "creationTimestamp")},
		{what: "a generation", name: "free", change: set(int64(99), "metadata", "generation")},
		{what: "a lock by somebody", name: "free", change: set("x", "metadata", "annotations", "sallyport.dev/locked")},
		{what: "a lock by who may", name: "free", change: set("x", "metadata", "annotations", "sallyport.dev/locked"), by: []func(*request){by(overrider)}},
		{what: "another path", name: "adopted", change: set("/DC0/vm/gold/other", "spec", "runtime", "vsphere", "inventoryPath")},
		{what: "a path of others", name: "adopted", change: set("/DC0/vm/silver/other", "spec", "runtime", "vsphere", "inventoryPath")},
		{what: "a run policy", name: "adopted", change: set("Manual", "spec", "runPolicy")},
		{what: "a server that there is not", name: "adopted", change: set("nobody", "spec", "runtime", "vsphere", "serverRef", "name")},
		{what: "a run policy", name: "leaving", change: set("AlwaysOff", "spec", "runPolicy")},
		{what: "no finalizers", name: "deleting", change: set(nil, "metadata", "finalizers")},
		{what: "a machine that there is not", name: "free", change: set("nobody", "metadata", "name")},
		{kind: "VirtualMachineOperation", what: "force", name: "done", change: set(true, "spec", "force")},
		{kind: "VirtualMachineOperation", what: "no stamps", name: "done", change: func(o map[string]any) map[string]any {
			return with(with(o, nil, "spec", "requestedAt"), nil, "spec", "requestedBy")
		}},
		{kind: "VirtualMachineOperation", what: "forged stamps", name: "done", change: set("2001-01-01T00:00:00.000000000Z", "spec", "requestedAt")},
		{kind: "VirtualMachineOperation", what: "a label", name: "done", change: set("42", "metadata", "labels", "ticket")},
		{kind: "VirtualMachineOperation", what: "another deadline", name: "done", change: set(int64(5), "spec", "activeDeadlineSeconds")},
		{kind: "VirtualMachinePool", what: "more replicas", name: "ci", change: set(int64(4), "spec", "replicas")},
		{kind: "VirtualMachinePool", what: "fewer replicas", name: "ci", change: set(int64(2), "spec", "replicas")},
		{kind: "VirtualMachinePool", what: "no replicas", name: "ci", change: set(nil, "spec", "replicas")},
		{kind: "VirtualMachinePool", what: "no member for a target", name: "ci", change: set([]any{map[string]any{"name": "free", "uid": "x"}}, "spec", "scaleDownTargets")},
		{kind: "VirtualMachinePool", what: "fewer replicas and a target", name: "ci", change: func(o map[string]any) map[string]any {
			return with(with(o, int64(3), "spec", "replicas"), []any{map[string]any{"name": "ci-0", "uid": text(o, "metadata", "labels", "member")}}, "spec", "scaleDownTargets")
		}},
		{kind: "VirtualMachinePool", what: "another policy", name: "ci", change: set("NewestFirst", "spec", "scaleDownPolicy")},
		{kind: "VSphereServer", what: "another URL", name: "vc", change: set("https://other.example.org", "spec", "url")},
		{kind: "VSphereServer", what: "no encryption", name: "vc", change: set("http://other.example.org", "spec", "url")},
	}
}

// of makes requests of changes, from the objects as they are.
func (c changed) of(world []map[string]any) request {
	if c.kind == "" {
		c.kind = "VirtualMachine"
	}
	i := slices.IndexFunc(world, func(o map[string]any) bool { return text(o, "kind") == c.kind && text(o, "metadata", "name") == c.name })
	if i < 0 {
		panic("there is no " + c.kind + " " + c.name)
	}
	object := c.change(with(world[i], nil, "metadata", "managedFields"))
	r := request{what: c.kind + " " + c.name + " with " + c.what, operation: admissionv1.Update, object: object, user: user{name: "alice"}, validation: offline.Strict}
	for _, change := range c.by {
		change(&r)
	}
	return r
}

// others are the kinds that no policy is about, and deletions.
func (l *list) others() {
	server := func(name, spec string) map[string]any {
		return parsed(l.t, `{"apiVersion": %q, "kind": "VSphereServer", "metadata": {"name": %q}, "spec": %s}`, v1alpha1.GroupVersion, name, spec)
	}
	const login = `"credentialsSecretRef": {"name": "vc"}, "trust": {"caBundle": "-----BEGIN CERTIFICATE-----"}`
	for i, spec := range []string{
		`{"url": "https://vc", ` + login + `}`, `{"url": "https://root:secret@vc", ` + login + `}`, `{"url": "https://vc"}`, `{}`,
		`{"url": "https://vc", ` + login + `, "tenants": [{"name": "a", "namespaces": {}}]}`,
		`{"url": "https://vc", ` + login + `, "tenants": [{"name": "a", "namespaces": {"names": ["a"]}}, {"name": "a", "namespaces": {"names": ["b"]}}]}`,
		`{"url": "https://vc", ` + login + `, "tenants": [{"name": "a", "namespaces": {"names": ["a"]}, "adopt": true}]}`,
		`{"url": "https://vc", ` + login + `, "tenants": [{"name": "a", "namespaces": {"names": ["a"]}, "quota": {"memory": "1e.5"}}]}`,
		`{"url": "https://vc", ` + login + `, "tenants": [{"name": "a", "namespaces": {"names": ["a"]}, "quota": {"memory": "1Ei", "cpu": 2147483648}}]}`,
	} {
		l.add("a server "+spec, admissionv1.Create, server(fmt.Sprintf("server-%d", i), spec))
	}
	for i, spec := range []string{
		`{"package": "a", "modules": [{"name": "a.rego", "source": "package a"}]}`, `{"package": "a"}`, `{"package": "A!", "modules": []}`,
		`{"package": "sallyport.lib.a", "library": true, "modules": [{"name": "a.rego", "source": "package a"}]}`,
		`{"package": "a", "mode": "Maybe", "modules": [{"name": "a.rego", "source": "package a"}], "match": {"resources": []}}`,
	} {
		l.add("a policy "+spec, admissionv1.Create, parsed(l.t, `{"apiVersion": %q, "kind": "RegoPolicy", "metadata": {"name": "p-%d"}, "spec": %s}`, v1alpha1.GroupVersion, i, spec))
	}
	for _, name := range []string{"stopped", "running", "free"} {
		l.add("deletion of machine "+name, admissionv1.Delete, l.machine(name, `{"runtime": {"pod": {}}}`))
	}
	l.add("deletion of a machine that is terminating", admissionv1.Delete, l.machine("stopped", `{"runtime": {"pod": {}}}`))
	l.add("deletion of an operation", admissionv1.Delete, l.stop("done"))
	l.add("deletion of a server", admissionv1.Delete, server("vc", `{"url": "https://vc"}`))
	l.add("an operation of a machine that was deleted", admissionv1.Create, l.operation("late", `{"virtualMachineName": "stopped", "type": "Start"}`))
}
