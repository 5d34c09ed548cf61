package inputs_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/decision"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// Everything that pools-scale-down reads is broken here, one place at a time, and each with another: a scale-down that was refused must
// not come to be allowed, but by a change that makes it another request or another pool.

const poolKind = "VirtualMachinePool"

// fleet answers with a pool and its members, which are broken.
type fleet struct {
	pool    object
	members []any
	leases  []any
	changes []change
}

const leaseKind = "Lease"

func (f fleet) For(*admissionv1.AdmissionRequest, facts.Subject) engine.Reader { return f }

func (f fleet) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	var answer any
	switch {
	case q.Parent:
		answer = changed(poolKind, f.pool, f.changes)
	case q.Kind == machineKind:
		answer = changed(machineKind, f.members, f.changes)
	case q.Kind == leaseKind:
		answer = changed(leaseKind, append([]any{}, f.leases...), f.changes)
	}
	v, err := engine.ValueOf(answer)
	return engine.Answer{Value: v, Live: q.Live}, err
}

func poolOf(scaleDownPolicy string, replicas int) object {
	p := explicitPool(replicas)
	p["spec"].(object)["scaleDownPolicy"] = scaleDownPolicy
	return p
}

// busyLease marks a member as busy for half an hour from when is decided.
func busyLease(slot int) any {
	return object{
		"apiVersion": "coordination.k8s.io/v1", "kind": leaseKind,
		"metadata": object{
			"name": fmt.Sprintf("ci-%d-busy", slot), "namespace": namespace, "uid": fmt.Sprintf("uid-lease-%d", slot),
			"labels": object{v1alpha1.LabelBusyMachine: fmt.Sprintf("uid-ci-%d", slot)},
		},
		"spec": object{
			"holderIdentity": "job", "renewTime": decidedAt.UTC().Format(metav1.RFC3339Micro), "leaseDurationSeconds": 1800,
		},
	}
}

// refusing has pools-scale-down refuse what would need busy members.
func refusing(p *v1alpha1.RegoPolicy) {
	if p.Name == "pools-scale-down" {
		p.Spec.Parameters = &runtime.RawExtension{Raw: []byte(`{"busyMembers": "Refuse"}`)}
	}
}

func explicitPool(replicas int, named ...any) object {
	return object{
		"apiVersion": apiVersion, "kind": poolKind,
		"metadata": object{"name": "ci", "namespace": namespace, "uid": "uid-ci", "generation": 1},
		"spec": object{
			"replicas": replicas, "scaleDownPolicy": "Explicit", "scaleDownTargets": append([]any{}, named...),
			"virtualMachineTemplate": object{"spec": object{"runtime": object{"pod": object{}}}},
		},
	}
}

func memberOfPool(slot int) any {
	vm := machineOf("Manual", "Running", nil)
	maps.Copy(vm["metadata"].(object), object{
		"name": fmt.Sprintf("ci-%d", slot), "uid": fmt.Sprintf("uid-ci-%d", slot), "labels": object{"sallyport.dev/pool-uid": "uid-ci"},
		"ownerReferences": []any{object{"apiVersion": apiVersion, "kind": poolKind, "name": "ci", "uid": "uid-ci", "controller": true}},
	})
	return vm
}

func targetAt(slot int) any {
	return object{"name": fmt.Sprintf("ci-%d", slot), "uid": fmt.Sprintf("uid-ci-%d", slot)}
}

// ofPool is a request that changes a pool, or its Scale.
func ofPool(subresource string, old, after object) object {
	kind := object{"group": group, "version": "v1alpha1", "kind": poolKind}
	resource := object{"group": group, "version": "v1alpha1", "resource": "virtualmachinepools"}
	return object{
		"uid": "r-1", "operation": "UPDATE", "kind": kind, "resource": resource, "subResource": subresource,
		"namespace": namespace, "name": "ci", "object": after, "oldObject": old, "userInfo": object{"username": "alice"},
	}
}

func scaleAt(replicas int) object {
	return object{"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": object{"name": "ci", "uid": "uid-ci"}, "spec": object{"replicas": replicas}}
}

// Nobody is taken away then, or the pool leaves to itself who goes, or is going.
var poolOpeners = []*regexp.Regexp{
	regexp.MustCompile(`^request\[oldObject spec replicas\] (deleted|= 0)$`),
	regexp.MustCompile(`^request\[oldObject spec\] = \{.*\}$`), // of a Scale: without replicas there are none
	regexp.MustCompile(`^(request\[oldObject|VirtualMachinePool\[)( ?spec)? ?scaleDownPolicy\] = ".+"$`),
	// Without new entries nobody is named who must not be; with an entry of before it is not new.
	regexp.MustCompile(`^request\[(object|oldObject) spec scaleDownTargets\] (deleted|= \[\])$`),
	regexp.MustCompile(`^request\[(object|oldObject) spec scaleDownTargets \d+ uid\] = ".+"$`),
}

// A member is idle whose Lease is another's, or held by nobody, or over, and what is no member any more is not in the way.
var busyOpeners = []*regexp.Regexp{
	regexp.MustCompile(`^Lease\[\] = \[\]$`),
	regexp.MustCompile(`^Lease\[\d metadata( labels)?\] = \{.*\}$`),
	regexp.MustCompile(`^Lease\[\d metadata labels( sallyport\.dev/busy-machine)?\] deleted$`),
	regexp.MustCompile(`^Lease\[\d metadata labels sallyport\.dev/busy-machine\] = ".*"$`),
	regexp.MustCompile(`^Lease\[\d spec\] = \{.*\}$`),
	regexp.MustCompile(`^Lease\[\d spec (holderIdentity|renewTime|leaseDurationSeconds)\] (deleted|= ""|= 0)$`),
	regexp.MustCompile(`^request\[oldObject metadata uid\] = ".+"$`), // another pool, which has no members
	regexp.MustCompile(`^VirtualMachine\[\] = \[\]$`),
	regexp.MustCompile(`^VirtualMachine\[\d metadata uid\] = ".+"$`),
	regexp.MustCompile(`^VirtualMachine\[\d metadata ownerReferences( 0 controller)?\] deleted$`),
	regexp.MustCompile(`^VirtualMachine\[\d metadata ownerReferences\] = \[\]$`),
	regexp.MustCompile(`^VirtualMachine\[\d metadata ownerReferences 0 (uid|controller)\] = (".*"|false)$`),
}

func TestBrokenScaleDownsAreNeverAllowed(t *testing.T) {
	set := compile(t, refusing)
	members := []any{memberOfPool(0), memberOfPool(1)}
	explicit := fleet{pool: explicitPool(3), members: members}
	busy := fleet{pool: poolOf("NewestFirst", 2), members: members, leases: []any{busyLease(0), busyLease(1)}}
	for name, tc := range map[string]struct {
		fleet   fleet
		request object
		reason  string
	}{
		"scaled":         {explicit, ofPool("scale", scaleAt(3), scaleAt(2)), "ScaleDownNotNamed"},
		"edited":         {explicit, ofPool("", explicitPool(3), explicitPool(2)), "ScaleDownNotNamed"},
		"named before":   {explicit, ofPool("", explicitPool(3, targetAt(1)), explicitPool(2, targetAt(1))), "ScaleDownNotNamed"},
		"no member":      {explicit, ofPool("", explicitPool(3), explicitPool(3, targetAt(7))), "TargetNotMember"},
		"named, no less": {explicit, ofPool("", explicitPool(3), explicitPool(3, targetAt(1))), "TooManyTargets"},
		"scaled, busy":   {busy, ofPool("scale", scaleAt(2), scaleAt(1)), "MembersBusy"},
		"edited, busy":   {busy, ofPool("", poolOf("OldestFirst", 2), poolOf("OldestFirst", 1)), "MembersBusy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := tc.fleet
			if r := f.ask(t, set, tc.request); r.Allowed || string(r.Result.Reason) != tc.reason {
				t.Fatalf("unbroken: %+v", r)
			}
			for _, changes := range f.holes(t, set, tc.request) {
				t.Errorf("allowed by %v", changes)
			}
		})
	}
}

// ask gives the answer to the broken request, and nil for what is no AdmissionReview any more.
func (f fleet) ask(t *testing.T, set *catalog.Set, request object, changes ...change) *admissionv1.AdmissionResponse {
	t.Helper()
	review, err := decode(changed("request", request, changes))
	if err != nil {
		return nil
	}
	f.changes = changes
	return gateOver(set, f).Answer(t.Context(), &decision.Question{Endpoint: decision.Validating, Review: review})
}

// holes are the changes that turn the denial into an allow and must not.
func (f fleet) holes(t *testing.T, set *catalog.Set, request object) (holes [][]change) {
	t.Helper()
	var sites []site
	for _, key := range []string{"namespace", "object", "oldObject"} {
		sites = append(sites, sitesOf("request", request[key], []any{key})...)
	}
	sites = append(sites, sitesOf(poolKind, f.pool, nil)...)
	sites = append(sites, sitesOf(machineKind, f.members, nil)...)
	sites = append(sites, sitesOf(leaseKind, f.leases, nil)...)
	singles := changesAt(sites)
	every := 3
	if testing.Short() {
		every = 40
	}
	for i := 0; i < len(singles); i += every {
		for _, changes := range [][]change{{singles[i]}, {singles[i], singles[(i*7919+13)%len(singles)]}} {
			if r := f.ask(t, set, request, changes...); r != nil && r.Allowed && !slices.ContainsFunc(changes, f.opens) {
				holes = append(holes, changes)
			}
		}
	}
	return holes
}

func (f fleet) opens(c change) bool {
	openers := poolOpeners
	if len(f.leases) > 0 {
		openers = slices.Concat(openers, busyOpeners)
	}
	return slices.ContainsFunc(openers, func(o *regexp.Regexp) bool { return o.MatchString(c.String()) })
}
