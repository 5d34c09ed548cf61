package inputs_test

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/test/support/shipped"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// oracle knows what the policies are for. The tables are those of the shipped policies; forms are the rows of the first.
type oracle struct{ shipped.Tables }

// opinion is what one policy has to say of an input: that it cannot read it, or why it refuses, or neither.
type opinion struct {
	problem, reason string
}

const (
	busy        = "OperationInProgress"
	missing     = "VirtualMachineNotFound"
	terminating = "VirtualMachineTerminating"
	badPolicy   = "RunPolicyForbids"
	observed    = "MachineObserved"
	badPhase    = "PhaseForbids"
	lost        = "InstanceLost"
	unusable    = "InstanceUnusable"
	copiedFrom  = "OperationCopied"
)

// expect gives the opinion that each policy must have.
func (o *oracle) expect(request object, w *world, subject facts.Subject) map[string]opinion {
	ns, inNamespace := text(request, "namespace")
	spec, _ := dig(request, "object", "spec")
	name, named := text(spec, "virtualMachineName")
	wanted, problem := o.form(spec)
	if !inNamespace || !named {
		problem = "no namespace or virtualMachineName"
	}
	if problem != "" { // there is not even a question to be asked
		return map[string]opinion{
			supersede: {problem: problem}, applicability: {problem: problem}, migration: {problem: problem}, copies: isCopy(spec),
		}
	}
	vm, operations := w.answer(aboutMachine(ns, name), subject), w.answer(aboutOperations(ns, name), subject)
	opinions := map[string]opinion{
		supersede: o.supersedes(wanted, vm, operations), applicability: o.applies(wanted, vm), migration: migrates(spec, vm, w, subject),
		copies: isCopy(spec),
	}
	for policy, values := range o.alsoRead(request, spec, vm, w, subject) {
		for _, v := range values {
			if v.mistyped() {
				opinions[policy] = opinion{problem: v.path + " is not of its type"}
			}
		}
	}
	for policy, want := range opinions {
		if policy == copies || policy == migration && !moves(spec) {
			continue // it does not ask for the machine
		}
		if vm != nil && want.problem == "" && !has(vm, "metadata.name", name) {
			opinions[policy] = opinion{problem: "it is another machine, or none"}
		}
	}
	return opinions
}

// value is what a policy reads besides what its opinion needs: if it is there, it must be of its type.
type value struct {
	of   any
	path string
	like any
}

func (v value) mistyped() bool {
	is, set := dig(v.of, strings.Split(v.path, ".")...)
	return set && reflect.TypeOf(is) != reflect.TypeOf(v.like)
}

// alsoRead lists values by policy.
func (o *oracle) alsoRead(request object, spec, vm any, w *world, subject facts.Subject) map[string][]value {
	read := map[string][]value{
		supersede: {{vm, "status.phase", ""}, {vm, "status.activeOperation.type", ""}},
		copies:    {{request, "object.spec.requestedBy", object{}}},
		migration: {{request, "object.metadata", object{}}, {request, "object.metadata.name", ""}},
	}
	conditions := conditionsRead(vm)
	for _, c := range conditionsOf(vm) {
		conditions = append(conditions, value{c, "reason", ""}, value{c, "message", ""})
	}
	read[applicability] = conditions
	if !moves(spec) {
		return read
	}
	to, _ := text(spec, "migrate", "nodeName")
	node := w.answer(aboutNode(to), subject)
	more := []value{{vm, "metadata.namespace", ""}, {vm, "metadata.generation", 0}, {node, "status", object{}}}
	more = append(append(more, conditionsRead(vm)...), conditionsRead(node)...)
	read[migration] = append(read[migration], more...)
	return read
}

// conditionsOf gives the conditions of an object.
func conditionsOf(of any) []any {
	conditions, _ := dig(of, "status", "conditions")
	list, _ := conditions.([]any)
	return list
}

// conditionsRead are the values of a policy that looks at types and status of conditions.
func conditionsRead(of any) []value {
	read := []value{{of, "status.conditions", []any{}}}
	for _, c := range conditionsOf(of) {
		read = append(read, value{object{"condition": c}, "condition", object{}}, value{c, "type", ""}, value{c, "status", ""})
	}
	return read
}

// aboutMachine asks for a machine, or nil.
func aboutMachine(ns, name string) engine.Query {
	return engine.Query{Kind: machineKind, Namespace: ns, Name: name}
}

// aboutOperations asks for the unfinished operations of a machine.
func aboutOperations(ns, machine string) engine.Query {
	return engine.Query{
		Kind: operationKind, Namespace: ns, Fields: map[string]string{"spec.virtualMachineName": machine},
		Except: map[string][]string{"status.phase": {"Completed", "Failed"}},
	}
}

// form gives the row of an operation: its type, and whether it is forced.
func (o *oracle) form(spec any) (string, string) {
	form, ok := text(spec, "type")
	if !ok {
		return "", "type cannot be read"
	}
	if _, ok := text(spec, "virtualMachineName"); !ok {
		return "", "virtualMachineName cannot be read"
	}
	if force, ok := dig(spec, "force"); ok {
		forced, boolean := force.(bool)
		if !boolean {
			return "", "force cannot be read"
		}
		if forced {
			form += " force"
		}
	}
	if _, known := o.SupersededBy[form]; !known {
		return "", "no such operation: " + form
	}
	return form, ""
}

// isCopy is the opinion of operations-copies: what has a requester and no time was left so by the policy defaults.
func isCopy(spec any) opinion {
	fields, is := spec.(object)
	if !is {
		return opinion{problem: "spec cannot be read"}
	}
	for _, field := range []string{"requestedAt", "virtualMachineName"} {
		if value, there := fields[field]; there && reflect.TypeOf(value) != reflect.TypeFor[string]() {
			return opinion{problem: field + " cannot be read"}
		}
	}
	_, requested := fields["requestedBy"]
	if at, _ := text(spec, "requestedAt"); requested && at == "" {
		return opinion{reason: copiedFrom}
	}
	return opinion{}
}

// applies is the opinion of operations-applicability.
func (o *oracle) applies(wanted string, vm any) opinion {
	if vm == nil {
		return opinion{reason: missing}
	}
	if metadata, _ := dig(vm, "metadata"); reflect.TypeOf(metadata) != reflect.TypeFor[object]() {
		return opinion{problem: "metadata of the machine cannot be read"}
	}
	deleted, isDeleted := dig(vm, "metadata", "deletionTimestamp")
	if since, _ := deleted.(string); isDeleted {
		if _, err := time.Parse(time.RFC3339, since); err != nil {
			return opinion{problem: "deletionTimestamp cannot be read"}
		}
	}
	runPolicy, _ := text(vm, "spec", "runPolicy")
	if spec, _ := dig(vm, "spec"); reflect.TypeOf(spec) == reflect.TypeFor[object]() {
		if _, has := dig(spec, "runPolicy"); !has {
			runPolicy = string(v1alpha1.RunPolicyManual)
		}
	}
	leaves, known := o.RunPolicies[runPolicy]
	if !known {
		return opinion{problem: "runPolicy cannot be read"}
	}
	phase, ok := phaseOf(vm)
	can, known := o.Phases[phase]
	if !ok || !known {
		return opinion{problem: "phase of the machine cannot be read"}
	}
	switch {
	case isDeleted:
		return opinion{reason: terminating}
	case runPolicy == string(v1alpha1.RunPolicyObserve):
		return opinion{reason: observed}
	case !slices.Contains(leaves, wanted):
		return opinion{reason: badPolicy}
	case slices.ContainsFunc(conditionsOf(vm), isUnusable):
		return opinion{reason: unusable}
	case !slices.Contains(can, wanted):
		return opinion{reason: forbids(phase)}
	}
	return opinion{}
}

// isUnusable tells whether a condition says that somebody made the machine unusable. Without a message it is no reason.
func isUnusable(condition any) bool {
	is := map[string]string{}
	for _, field := range []string{"type", "status", "reason"} {
		is[field], _ = text(condition, field)
	}
	_, says := text(condition, "message")
	return says && is["type"] == "Ready" && is["status"] == "False" && is["reason"] == "InstanceUnusable"
}

// forbids is the reason for which a phase does not let something be done.
func forbids(phase string) string {
	if phase == "Failed" {
		return lost
	}
	return badPhase
}

// phaseOf gives status.phase of a machine. What has no status or an empty phase was not looked at yet.
func phaseOf(vm any) (string, bool) {
	status, set := dig(vm, "status")
	if _, ok := status.(object); set && !ok {
		return "", false
	}
	phase, set := dig(status, "phase")
	if !set || phase == "" {
		return string(v1alpha1.VirtualMachinePending), true
	}
	return text(status, "phase")
}

// supersedes is the opinion of operations-supersede.
func (o *oracle) supersedes(wanted string, vm, operations any) opinion {
	undone, holder, problem := o.claim(vm)
	list, ok := operations.([]any)
	if !ok {
		problem = "the list of operations is none"
	}
	var running []string
	for _, operation := range list {
		form, flaw := o.running(operation)
		if flaw != "" {
			problem = flaw
		}
		if !undone(operation) {
			running = append(running, form)
		}
	}
	if problem != "" {
		return opinion{problem: problem}
	}
	if holder != "" {
		running = append(running, holder)
	}
	var want opinion
	for _, form := range running { // Delete has no row: a deletion yields to nothing
		if !slices.Contains(o.SupersededBy[form], wanted) {
			want.reason = busy
		}
	}
	return want
}

// running gives the form of an unfinished operation. Which unfinished phase it is in makes no difference, so any word will
// do: the finished ones were left out of the list, by name.
func (o *oracle) running(operation any) (form, problem string) {
	spec, _ := dig(operation, "spec")
	if form, problem = o.form(spec); problem != "" {
		return "", problem
	}
	if _, ok := text(operation, "metadata", "name"); !ok {
		return "", "name of an operation cannot be read"
	}
	if _, ok := text(operation, "metadata", "uid"); !ok {
		return "", "uid of an operation cannot be read"
	}
	if status, set := dig(operation, "status"); set {
		if _, ok := status.(object); !ok {
			return "", "status of an operation cannot be read"
		}
	}
	if _, set := dig(operation, "status", "phase"); set {
		if _, ok := text(operation, "status", "phase"); !ok {
			return "", "phase of an operation cannot be read"
		}
	}
	return form, ""
}

// claim reads who holds the machine, if that is no operation, and which operations are being undone.
func (o *oracle) claim(vm any) (undone func(operation any) bool, holder, problem string) {
	var entries []any
	undone = func(operation any) bool {
		return slices.ContainsFunc(entries, func(entry any) bool { return isUndone(operation, entry) })
	}
	if vm == nil {
		return undone, "", ""
	}
	status, set := dig(vm, "status")
	if _, ok := status.(object); !ok && (set || reflect.TypeOf(vm) != reflect.TypeFor[object]()) {
		return undone, "", "status of the machine cannot be read"
	}
	if undoing, set := dig(status, "undoing"); set {
		var ok bool
		if entries, ok = undoing.([]any); !ok {
			return undone, "", "undoing is no list"
		}
	}
	for _, entry := range entries {
		_, identified := text(entry, "id")
		origin, _ := text(entry, "origin")
		name, named := dig(entry, "name")
		if _, isText := name.(string); !identified || !slices.Contains(origins, origin) || named && !isText {
			return undone, "", "an entry of undoing cannot be read"
		}
	}
	holder, problem = o.holder(status)
	return undone, holder, problem
}

var origins = []string{"Operation", "RunPolicy", "Placement", "Rollout", "Deletion"}

// holder gives the type of a claim that no operation holds. One that holds it is judged as an operation.
func (o *oracle) holder(status any) (holder, problem string) {
	if _, set := dig(status, "activeOperation"); !set {
		return "", ""
	}
	origin, _ := text(status, "activeOperation", "origin")
	doing, _ := text(status, "activeOperation", "type")
	_, known := o.SupersededBy[doing]
	switch {
	case origin == "Operation":
		return "", ""
	case !slices.Contains(origins, origin):
		return "", "origin of the claim cannot be read"
	case (origin == "Deletion") != (doing == "Delete") || !known && doing != "Delete":
		return "", "type of the claim cannot be read"
	}
	return doing, ""
}

func isUndone(operation, entry any) bool {
	uid, ok := text(operation, "metadata", "uid")
	return ok && has(entry, "id", uid)
}
