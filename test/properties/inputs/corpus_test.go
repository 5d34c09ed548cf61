package inputs_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// base is a request with its world, before anything is broken.
type base struct {
	name    string
	class   string // why it is denied, or "allowed"
	form    string
	request object
	world   *world
	sites   [][]site
}

// Classes of bases beside the reasons: the different things by which a machine can be busy.
const (
	allowed       = "allowed"
	busyOperation = "an operation in progress"
	busyNamesake  = "the namesake of an operation that is being undone"
	busyHolder    = "a claim of no operation"
	busyDeletion  = "a claim of the deletion"
)

// operationOf makes an operation as the API server has it after the mutating webhook.
func operationOf(name, form, phase string) object {
	kind, forced := strings.CutSuffix(form, " force")
	o := object{
		"apiVersion": apiVersion, "kind": operationKind,
		"metadata": object{
			"name": name, "namespace": namespace, "uid": "uid-" + name, "creationTimestamp": "2026-11-20T09:00:00Z", "generation": 1,
			"labels": object{"sallyport.dev/virtual-machine": machineName},
		},
		"spec": object{
			"type": kind, "force": forced, "virtualMachineName": machineName, "virtualMachineUID": "uid-" + machineName,
			"ttlSecondsAfterFinished": 86400, "requestedAt": "2026-11-20T09:00:00.000000001Z",
			"requestedBy": object{"username": "alice", "groups": []any{"system:authenticated"}},
		},
	}
	if phase != "" {
		o["status"] = object{"phase": phase, "conditions": []any{object{"type": "Completed", "status": "False", "reason": "InProgress"}}}
	}
	return o
}

// machineOf makes a machine; more is merged into its status.
func machineOf(runPolicy, phase string, more object) object {
	status := object{
		"observedGeneration": 1, "phase": phase, "nodeName": "node-1", "instanceID": "i-1", "incarnation": "3",
		"powerIntent": object{"state": "Running", "by": "RunPolicy", "at": "2026-11-20T08:00:00.000000Z"},
		"conditions":  []any{object{"type": "Ready", "status": "True", "reason": "Running"}},
	}
	maps.Copy(status, more)
	return object{
		"apiVersion": apiVersion, "kind": machineKind,
		"metadata": object{
			"name": machineName, "namespace": namespace, "uid": "uid-" + machineName, "creationTimestamp": "2026-11-01T09:00:00Z",
			"generation": 1, "finalizers": []any{"sallyport.dev/virtual-machine"},
		},
		"spec": object{
			"runPolicy": runPolicy, "cpu": 2, "memory": "4Gi", "runtime": object{"pod": object{}},
		},
		"status": status,
	}
}

func claimOf(origin, kind, name string) object {
	o := object{"id": "uid-" + name, "origin": origin, "type": kind, "force": false, "claimedAt": "2026-11-20T09:00:00.000000Z"}
	if origin == "Operation" {
		o["name"] = name
	}
	return object{"activeOperation": o}
}

func undoingOf(id, name string) object {
	return object{"undoing": []any{object{
		"id": id, "origin": "Operation", "name": name, "type": "Migrate", "force": false, "task": "task-1",
		"end": "Superseded", "by": object{"name": "another", "uid": "uid-another"},
	}}}
}

// requestOf is the AdmissionRequest for the creation of an operation. A Migrate names the node that is in every world.
func requestOf(form string) object {
	o := operationOf("new", form, "")
	if strings.HasPrefix(form, "Migrate") {
		o["spec"].(object)["migrate"] = object{"nodeName": nodeName}
	}
	kind := object{"group": group, "version": "v1alpha1", "kind": operationKind}
	resource := object{"group": group, "version": "v1alpha1", "resource": "virtualmachineoperations"}
	return object{
		"uid": "r-1", "operation": "CREATE", "kind": kind, "requestKind": kind, "resource": resource, "requestResource": resource,
		"namespace": namespace, "name": "new", "object": o, "oldObject": nil, "dryRun": false,
		"options":  object{"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl-create"},
		"userInfo": object{"username": "alice", "uid": "u-1", "groups": []any{"team-a"}, "extra": object{"scopes": []any{"a"}}},
	}
}

// broken are the members of a request in which changes are made; what else is in it chooses the policies.
var broken = []string{"namespace", "name", "object", "userInfo", "options", "dryRun"}

// corpus makes every base that the tables have room for.
func corpus(o *oracle) []*base {
	var all []*base
	add := func(class, form, name string, objects ...object) {
		all = append(all, &base{name: name, class: class, form: form, request: requestOf(form), world: &world{objects: objects}})
	}
	const free = "Manual" // the run policy that leaves everything to people
	others := []object{   // on every world: what must not matter
		operationOf("finished", "Stop force", "Completed"), operationOf("failed", "Restart force", "Failed"), nodeOf(),
	}
	for _, form := range slices.Sorted(maps.Keys(o.SupersededBy)) {
		ready := o.phaseFor(form)
		with := func(vm object, more ...object) []object { return slices.Concat(others, more, []object{vm}) }
		add(allowed, form, form+" on an idle machine", with(machineOf(free, ready, nil))...)
		add(allowed, form, form+" during the undoing of another", with(
			machineOf(free, ready, undoingOf("uid-lost", "lost")), operationOf("lost", "Stop force", "InProgress"))...)
		add(busyNamesake, form, form+" beside a namesake of what is undone", with(
			machineOf(free, ready, undoingOf("uid-of-an-earlier-one", "stop")), operationOf("stop", "Stop force", "Pending"))...)
		for running, yields := range o.SupersededBy {
			class := busyOperation
			if slices.Contains(yields, form) {
				class = allowed
			}
			kind, _, _ := strings.Cut(running, " ")
			for _, phase := range []string{"", "InProgress", "Terminating"} {
				add(class, form, fmt.Sprintf("%s during %s, %q", form, running, phase), with(
					machineOf(free, ready, claimOf("Operation", kind, "running")), operationOf("running", running, phase))...)
			}
		}
		for _, holder := range []struct{ origin, kind string }{
			{"RunPolicy", "Start"}, {"RunPolicy", "Stop"}, {"Placement", "Migrate"}, {"Rollout", "Restart"}, {"Deletion", "Delete"},
		} {
			class := busyHolder
			switch {
			case holder.origin == "Deletion":
				class = busyDeletion
			case slices.Contains(o.SupersededBy[holder.kind], form):
				class = allowed
			}
			name := fmt.Sprintf("%s during %s by %s", form, holder.kind, holder.origin)
			add(class, form, name, with(machineOf(free, ready, claimOf(holder.origin, holder.kind, "claim")))...)
		}
		gone := machineOf(free, ready, nil)
		gone["metadata"].(object)["deletionTimestamp"] = "2026-11-20T09:59:00Z"
		add(terminating, form, form+" on a machine that is being deleted", with(gone)...)
		add(missing, form, form+" on nothing", others...)
		for runPolicy, leaves := range o.RunPolicies {
			if !slices.Contains(leaves, form) {
				why := badPolicy
				if runPolicy == "Observe" {
					why = observed
				}
				add(why, form, form+" under "+runPolicy, with(machineOf(runPolicy, ready, nil))...)
			}
		}
		for phase, can := range o.Phases {
			if !slices.Contains(can, form) {
				add(forbids(phase), form, form+" while "+phase, with(machineOf(free, phase, nil))...)
			}
		}
	}
	slices.SortFunc(all, func(a, b *base) int { return strings.Compare(a.name, b.name) }) // maps have no order
	for _, b := range all {
		b.sites = b.findSites()
	}
	return all
}

// phaseFor gives a phase in which a machine can carry out the operation.
func (o *oracle) phaseFor(form string) string {
	for _, phase := range slices.Sorted(maps.Keys(o.Phases)) {
		if slices.Contains(o.Phases[phase], form) && phase != "Pending" { // Pending is what is left when a phase is lost
			return phase
		}
	}
	return ""
}

// findSites groups the places that can be broken by where they are: the object twice, as it is what clients write.
func (b *base) findSites() [][]site {
	var envelope, created []site
	for _, key := range broken {
		sites := sitesOf("request", b.request[key], []any{key})
		if key == "object" {
			created = sites
		} else {
			envelope = append(envelope, sites...)
		}
	}
	groups := [][]site{envelope, created, created}
	about := []engine.Query{aboutMachine(namespace, machineName), aboutOperations(namespace, machineName)}
	if strings.HasPrefix(b.form, "Migrate") {
		about = append(about, aboutNode(nodeName))
	}
	for _, q := range about {
		sites := sitesOf(q.Kind, b.world.find(q, facts.Subject{}), nil)
		groups = append(groups, sites)
		if len(sites) > 1 {
			groups = append(groups, sites)
		}
	}
	return groups
}
