package inputs_test

import (
	"context"
	"fmt"
	"runtime/metrics"
	"strings"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// What one forged review may cost, whatever is in it: a decision no more processor time than its deadline and this, and altogether no
// more memory than that.
const (
	deadline      = 4 * time.Second // of policies-self, the longest
	overtime      = 100 * time.Millisecond
	mostAllocated = 64 << 20
)

// forgeries are reviews that between them meet all shipped policies; a forger puts something in the place of each @.
var forgeries = func() []string {
	review := func(group, version, kind, resource, sub, operation, name, objects string) string {
		return fmt.Sprintf(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "forged", "operation": %q,
"kind": {"group": %q, "version": %q, "kind": %q}, "resource": {"group": %q, "version": %q, "resource": %q}, "subResource": %q, "name": %q,
"namespace": "ns", "userInfo": {"username": "mallory", "groups": ["g"]}, %s}}`, operation, group, version, kind, group, version, resource, sub, name, objects)
	}
	object := func(apiVersion, kind, rest string) string {
		return fmt.Sprintf(`{"apiVersion": %q, "kind": %q, "metadata": {"name": "x", "namespace": "ns", "uid": "u", "labels": {"a": "b"}`, apiVersion, kind) + rest
	}
	// A place for each of what policies read: metadata, annotations and the fields of spec.
	meta := `, "more": @}, "spec": {}}`
	annotations := `, "annotations": {"sallyport.dev/min-replicas": @, "sallyport.dev/allow-deletion": @, "sallyport.dev/override": @}}, "spec": {}}`
	fields := func(names ...string) string {
		var all []string
		for _, name := range names {
			all = append(all, fmt.Sprintf("%q: @", name))
		}
		return `}, "spec": {` + strings.Join(all, ", ") + `}, "status": {"phase": @}}`
	}
	var all []string
	for _, k := range []struct {
		group, version, kind, resource, sub string
		operations                          []string
		places                              []string
	}{
		{"apps", "v1", "Deployment", "deployments", "", []string{"CREATE", "UPDATE", "DELETE"}, []string{meta, annotations, fields("replicas"), fields("template")}},
		{"autoscaling", "v1", "Scale", "deployments", "scale", []string{"UPDATE"}, []string{fields("replicas"), annotations}},
		{"sallyport.dev", "v1alpha1", "VirtualMachine", "virtualmachines", "", []string{"CREATE", "UPDATE", "DELETE"}, []string{meta, annotations, fields("runPolicy"), fields("runtime"), fields("cpu", "memory")}},
		{"sallyport.dev", "v1alpha1", "VirtualMachineOperation", "virtualmachineoperations", "", []string{"CREATE", "UPDATE"}, []string{meta, annotations, fields("type", "force"), fields("virtualMachineName"), fields("requestedBy"), fields("migrate")}},
		{"sallyport.dev", "v1alpha1", "RegoPolicy", "regopolicies", "", []string{"CREATE", "UPDATE", "DELETE"}, []string{meta, annotations, fields("parameters"), fields("match"), fields("modules"), fields("reads"), fields("timeoutMilliseconds")}},
		{"", "v1", "Namespace", "namespaces", "", []string{"UPDATE", "DELETE"}, []string{meta, annotations, fields("finalizers")}},
		{"apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", "", []string{"UPDATE", "DELETE"}, []string{meta, annotations, fields("group", "names"), fields("versions")}},
	} {
		version := strings.TrimPrefix(k.group+"/"+k.version, "/")
		for _, operation := range k.operations {
			for _, place := range k.places {
				is := object(version, k.kind, place)
				objects := `"object": ` + is
				switch operation {
				case "UPDATE":
					objects += `, "oldObject": ` + is
				case "DELETE":
					objects = `"object": null, "oldObject": ` + is
				}
				all = append(all, review(k.group, k.version, k.kind, k.resource, k.sub, operation, "x", objects))
			}
		}
	}
	return all
}()

// shapes are what is put there: much of something that is small to write.
var shapes = []shape{
	{"a long number", 6_900_000, func(n int) string { return strings.Repeat("9", max(n, 1)) }},
	{"a small number", 6_900_000, func(n int) string { return "0." + strings.Repeat("0", n) + "1" }},
	{"a large exponent", 9_999_999, func(n int) string { return fmt.Sprintf("1e%d", n) }},
	{"deep lists", 1_000_000, func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }},
	{"deep objects", 1_000_000, func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }},
	{"many objects", 420_000, func(n int) string { return "[" + strings.Repeat("{},", n) + "{}]" }},
	{"many small lists", 210_000, func(n int) string { return "[" + strings.Repeat("[0],", n) + "0]" }},
	{"many members", 210_000, func(n int) string { return members(n, "1") }},
	{"many objects in members", 210_000, func(n int) string { return members(n, "{}") }},
	{"digits in a text", 3_000_000, func(n int) string { return `"` + strings.Repeat("7", n) + `"` }},
	{"zeros in a text", 3_000_000, func(n int) string { return `"` + strings.Repeat("0", n) + `1"` }},
	{"a long text", 1_000_000, func(n int) string { return `"` + strings.Repeat("a; ", n) + `"` }},
	{"an escaped text", 500_000, func(n int) string { return `"` + strings.Repeat(`\u0041`, n) + `"` }},
	{"a list of numbers", 420_000, func(n int) string { return "[" + strings.Repeat("1e308,", n) + "1]" }},
}

// shape is so many of something.
type shape struct {
	name string
	most int
	text func(n int) string
}

func members(n int, value string) string {
	var b strings.Builder
	b.WriteString("{")
	for i := range n {
		fmt.Fprintf(&b, `"f%d":%s,`, i, value)
	}
	b.WriteString(`"f":` + value + "}")
	return b.String()
}

// nobodyAnswers is a cluster in which nothing is.
type nobodyAnswers struct{}

func (nobodyAnswers) For(*admissionv1.AdmissionRequest, facts.Subject) engine.Reader {
	return nobodyAnswers{}
}

func (nobodyAnswers) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	v, err := engine.ValueOf(map[bool]any{true: []any{}, false: nil}[q.Name == "" && !q.Parent && q.Access == nil && !q.TestRun])
	return engine.Answer{Value: v, Live: q.Live}, err
}

func guarded(tb testing.TB) *decision.Decider {
	tb.Helper()
	shipped, err := policies.Shipped()
	if err != nil {
		tb.Fatal(err)
	}
	set, err := catalog.Compile(shipped)
	if err != nil {
		tb.Fatal(err)
	}
	return decision.NewDecider(set, nobodyAnswers{}, recorder, time.Now)
}

// spent is what the process has used of processor and memory so far.
func spent() (processor time.Duration, allocated uint64) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), sample[0].Value.Uint64()
}

// judged puts a review to the gate, as the API server does twice, and says what is wrong with what a decision cost.
func judged(ctx context.Context, gate *decision.Decider, body []byte) string {
	for _, endpoint := range []string{decision.Validating, decision.Mutating} {
		processor, allocated := spent()
		review, err := decision.Decode(body)
		var response *admissionv1.AdmissionResponse
		if err == nil {
			response = gate.Answer(ctx, &decision.Question{Endpoint: endpoint, Review: review})
		}
		after, total := spent()
		switch used := after - processor; {
		case strings.Contains(response.String(), string(engine.StillRunning)):
			return "an evaluation did not end at its deadline"
		case total-allocated > mostAllocated:
			return fmt.Sprintf("%d MiB were allocated, and %v used of the processor", (total-allocated)>>20, used)
		case used > deadline+overtime:
			return fmt.Sprintf("a decision took %v of the processor", used)
		}
	}
	return ""
}

func forged(which string, what shape, n int) []byte {
	return []byte(strings.ReplaceAll(which, "@", what.text(n)))
}

// Whatever of a kind is put wherever policies look, a review costs no more than what a decision may.
func FuzzForged(f *testing.F) {
	for i, shape := range shapes {
		for j := range 3 {
			for _, n := range []int{20, 48_000, shape.most} {
				f.Add(uint(7*i+19*j), uint(i), uint(n))
			}
		}
	}
	gate := guarded(f)
	if wrong := judged(f.Context(), gate, forged(forgeries[0], shapes[0], 1)); wrong != "" { // the first decision is the dearest
		f.Fatal(wrong)
	}
	f.Fuzz(func(t *testing.T, which, what, n uint) {
		review, shape := forgeries[which%uint(len(forgeries))], shapes[what%uint(len(shapes))]
		n %= uint(shape.most) + 1
		body := forged(review, shape, int(n))
		if len(body) > 7<<20 {
			t.Skip("the handler does not read it")
		}
		if wrong := judged(t.Context(), gate, body); wrong != "" {
			t.Errorf("%s, %d of them, in %.400s: %s", shape.name, n, review, wrong)
		}
	})
}
