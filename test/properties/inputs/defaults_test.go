package inputs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// stamps are the fields of an operation's spec that only the policy `defaults` writes.
var stamps = []string{"requestedBy", "requestedAt", "virtualMachineUID", "override"}

// stampedByClient is an operation whose client has filled in what is not theirs to say.
func stampedByClient() object {
	o := operationOf("new", "Stop", "")
	maps.Copy(o["spec"].(object), object{
		"requestedBy": object{"username": "mallory", "groups": []any{"system:masters"}}, "requestedAt": "2000-01-01T00:00:00.000000000Z",
		"virtualMachineUID": "uid-of-another", "override": supersede + "; uid=; by=alice; until=2026-11-20T11:00:00Z; drill",
	})
	o["metadata"].(object)["annotations"] = object{v1alpha1.AnnotationOverride: supersede + "; uid=; by=alice; until=2026-11-20T10:30:00Z; ticket 42"}
	return o
}

// writes are the requests that the policy `defaults` meets, on a world with the machine and on one without.
func writes() []*base {
	operation, machine := stampedByClient(), machineOf("Manual", "Running", nil)
	bare := operationOf("new", "Stop", "")
	delete(bare["metadata"].(object), "labels")
	bare["metadata"].(object)["annotations"] = maps.Clone(operation["metadata"].(object)["annotations"].(object))
	for _, field := range stamps {
		delete(bare["spec"].(object), field)
	}
	unfinalized := machineOf("Manual", "Running", nil)
	delete(unfinalized["metadata"].(object), "finalizers")
	deleted := machineOf("Manual", "Running", nil)
	deleted["metadata"].(object)["deletionTimestamp"] = "2026-11-20T09:59:00Z"
	var all []*base
	for _, w := range []struct {
		resource, kind, operation string
		object, old               any
	}{
		{"virtualmachineoperations", operationKind, "CREATE", operation, nil},
		{"virtualmachineoperations", operationKind, "CREATE", bare, nil},
		{"virtualmachineoperations", operationKind, "UPDATE", operation, operationOf("new", "Stop", "Pending")},
		{"virtualmachineoperations", operationKind, "UPDATE", bare, operationOf("new", "Stop", "Pending")},
		{"virtualmachineoperations", operationKind, "UPDATE", operation, bare},
		{"virtualmachines", machineKind, "CREATE", unfinalized, nil},
		{"virtualmachines", machineKind, "UPDATE", unfinalized, machine},
		{"virtualmachines", machineKind, "UPDATE", machine, machine},
		{"virtualmachines", machineKind, "UPDATE", unfinalized, deleted},
	} {
		request := requestOf("Stop")
		maps.Copy(request, object{
			"operation": w.operation, "object": w.object, "oldObject": w.old,
			"kind":     object{"group": group, "version": "v1alpha1", "kind": w.kind},
			"resource": object{"group": group, "version": "v1alpha1", "resource": w.resource},
		})
		b := &base{name: w.operation + " " + w.resource, class: w.operation + " " + w.resource, request: request}
		created := sitesOf("request", w.object, []any{"object"})
		b.sites = [][]site{created, created}
		if w.old != nil {
			b.sites = append(b.sites, sitesOf("request", w.old, []any{"oldObject"}))
		}
		empty := *b
		b.world, empty.world = &world{objects: []object{machine}}, &world{}
		all = append(all, b, &empty)
	}
	return all
}

// Clients write what they like, and it is for the schema to refuse it: the policy that fills in objects must let every
// shape pass, must give patches that apply, and must leave nothing of the client's in the fields that are its own.
func TestBrokenObjectsAreFilledIn(t *testing.T) {
	set := compile(t, asShipped)
	d := drawingOf(writes())
	n := trials() / 5
	var c tally
	inParallel(t, n, func(i int) string {
		b, changes := d.number(i)
		request := changed("request", b.request, changes).(object)
		review, err := decode(request)
		if err != nil {
			return fmt.Sprintf("%v\n%v\n%s", err, changes, shown(request))
		}
		response := gateOver(set, b.world).Answer(t.Context(), &decision.Question{Endpoint: decision.Mutating, Review: review})
		patched, problem := patchedBy(response, request)
		if problem == "" {
			problem = wrongStamps(request, patched, b.world, &c)
		}
		if problem != "" {
			return fmt.Sprintf("%s\nbase: %s\nchanges: %v\nrequest: %s\npatch: %s\nresult: %s",
				problem, b.name, changes, shown(request), response.Patch, shown(response.Result))
		}
		if response.Patch != nil {
			c.add("patched")
		}
		return ""
	})
	c.log(t, n)
	c.atLeast(t, n, map[string]float64{"patched": 0.5, "stamped at CREATE": 0.05, "stamped at UPDATE": 0.1, "without spec": 0.02, "overriding": 0.02})
}

// patchedBy applies the patch of a response as the API server does.
func patchedBy(response *admissionv1.AdmissionResponse, request object) (any, string) {
	if !response.Allowed || len(response.Warnings) > 0 {
		return nil, fmt.Sprintf("allowed %v, warnings %q", response.Allowed, response.Warnings)
	}
	if response.Patch == nil {
		return request["object"], ""
	}
	patch, err := jsonpatch.DecodePatch(response.Patch)
	if err != nil {
		return nil, "no patch: " + err.Error()
	}
	before, err := json.Marshal(request["object"])
	if err != nil {
		return nil, err.Error()
	}
	after, err := patch.Apply(before)
	if err != nil {
		return nil, "the patch does not apply: " + err.Error()
	}
	var patched any
	if err := json.Unmarshal(after, &patched); err != nil {
		return nil, err.Error()
	}
	return patched, ""
}

// wrongStamps says which of the fields that only the policy writes are not what they must be. An operation whose spec is no
// object cannot be stamped, and does not pass the schema.
func wrongStamps(request object, patched any, w *world, c *tally) string {
	if !has(request, "resource.resource", "virtualmachineoperations") {
		return ""
	}
	specValue, _ := dig(patched, "spec")
	spec, ok := specValue.(object)
	if !ok {
		c.add("without spec")
		return ""
	}
	want := object{}
	switch {
	case request["operation"] == "CREATE" && copied(request):
		c.add("a copy")
		want["requestedBy"] = request["userInfo"]
	case request["operation"] == "CREATE":
		c.add("stamped at CREATE")
		want["requestedBy"] = request["userInfo"]
		want["requestedAt"] = decidedAt.Format(engine.TimeFormat)
		name, _ := text(spec, "virtualMachineName")
		vm := w.find(aboutMachine(namespace, name), facts.Subject{})
		if uid, ok := text(vm, "metadata", "uid"); ok && name != "" {
			want["virtualMachineUID"] = uid
		}
		if override, ok := text(request, "object", "metadata", "annotations", v1alpha1.AnnotationOverride); ok && len(override) <= 1024 {
			c.add("overriding")
			want["override"] = override
		}
	default:
		c.add("stamped at UPDATE")
		for _, field := range stamps {
			if old, ok := dig(request, "oldObject", "spec", field); ok {
				want[field] = old
			}
		}
	}
	for _, field := range stamps {
		got, there := spec[field]
		if wanted, ok := want[field]; ok != there || !bytes.Equal(canonical(got), canonical(wanted)) {
			return fmt.Sprintf("spec.%s is %s, not %s", field, shown(got), shown(wanted))
		}
	}
	return ""
}

// copied reports whether a new operation has one of the fields that only the policy writes.
func copied(request object) bool {
	return slices.ContainsFunc(stamps, func(field string) bool {
		value, there := dig(request, "object", "spec", field)
		return there && value != nil
	})
}

func canonical(document any) []byte {
	text, err := json.Marshal(document)
	if err != nil {
		return nil
	}
	return text
}
