package inputs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/webhooks"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
)

// These tests break what policies read, one to three fields at a time, and hold the answer against an oracle: a model in
// Go of what the policies are for, which knows of every field that a decision rests on whether it can be read.
//
// An allow is legitimate only if the broken input deserves it when taken at its word:
//
//   - Every field that the decision rests on is there and of its type, or its absence has a meaning of its own.
//   - The tables in the shipped parameters allow what the input then says.
//
// Replacements never are valid values of a field that has a list of values, objects are never taken out of the list of
// operations, and the list is never replaced by []. That leaves a handful of changes by which a request that was denied
// may come to be allowed, because nothing tells its input from one in which the field was never set. They are listed in
// openers, and a request that passes without one of them is a hole, whatever the oracle says.
//
// Whatever is not readable must be an error of every policy that reads it. What is readable must get the oracle's verdict,
// reason for reason, so that the policies cannot pass by refusing everything.
//
// Fields that choose which policies are asked (operation, kind, resource, subResource) stay as they are: without them it
// is another request.

var (
	count  = flag.Int("inputs.count", 10_000, "how many mutated requests to validate; a fifth as many are mutated by the policies")
	seed   = flag.Uint64("inputs.seed", 1, "what the mutations are drawn from")
	strict = flag.Bool("inputs.strict", false, "fail for the holes that are known")
)

type object = map[string]any

const (
	group         = "sallyport.dev"
	apiVersion    = group + "/v1alpha1"
	machineKind   = "VirtualMachine"
	operationKind = "VirtualMachineOperation"
	namespace     = "team-a"
	machineName   = "web-1"

	supersede     = "operations-supersede"
	applicability = "operations-applicability"
)

// decidedAt is when every decision is made.
var decidedAt = time.Date(2026, 11, 20, 10, 0, 0, 123456789, time.UTC)

// ---------------------------------------------------------------------------------------------------------------------
// Documents that can be broken
// ---------------------------------------------------------------------------------------------------------------------

// change breaks one place of the request or of an answer.
type change struct {
	root   string // "request", or the kind that the answer is of
	path   []any  // keys and positions
	remove bool
	value  any // what is there instead, unless removed
}

func (c change) String() string {
	if c.remove {
		return fmt.Sprintf("%s%v deleted", c.root, c.path)
	}
	return fmt.Sprintf("%s%v = %s", c.root, c.path, shown(c.value))
}

// to gives the document with the change. The original stays as it is; a place that is not there any more changes nothing.
func (c change) to(document any) any { return c.at(document, c.path) }

func (c change) at(node any, path []any) any {
	if len(path) == 0 {
		return c.value
	}
	switch node := node.(type) {
	case object:
		key, _ := path[0].(string)
		child, ok := node[key]
		if !ok {
			return node
		}
		changed := maps.Clone(node)
		if c.remove && len(path) == 1 {
			delete(changed, key)
		} else {
			changed[key] = c.at(child, path[1:])
		}
		return changed
	case []any:
		i, ok := path[0].(int)
		if !ok || i >= len(node) {
			return node
		}
		changed := slices.Clone(node)
		changed[i] = c.at(node[i], path[1:])
		return changed
	}
	return node
}

// changed applies those of the changes that are for the root.
func changed(root string, document any, changes []change) any {
	for _, c := range changes {
		if c.root == root {
			document = c.to(document)
		}
	}
	return document
}

var bigString = strings.Repeat("x", 4096)

// replacements are of every type of JSON, and never a value that a field with a list of values can have.
var replacements = []any{
	nil, "", 0, false, []any{}, object{}, "Bogus", object{"bogus": object{"bogus": []any{nil, "Running"}}}, bigString,
}

// site is a place where a change can be made.
type site struct {
	root string
	path []any
}

// openers are the changes that may turn a denial into an allow, as regular expressions over what change.String gives.
var openers = []*regexp.Regexp{
	// Not forced: another operation than the one that was refused, or one that yields more easily.
	regexp.MustCompile(`^request\[object spec force\] (deleted|= false)$`),
	regexp.MustCompile(`^VirtualMachineOperation\[\d+ spec force\] (deleted|= false)$`),
	// Not being deleted.
	regexp.MustCompile(`^VirtualMachine\[metadata deletionTimestamp\] deleted$`),
	// Not looked at yet, so Pending, and idle.
	regexp.MustCompile(`^VirtualMachine\[status\] (deleted|= \{.*)$`),
	regexp.MustCompile(`^VirtualMachine\[status phase\] (deleted|= "")$`),
	// Idle.
	regexp.MustCompile(`^VirtualMachine\[status activeOperation\] deleted$`),
}

// holes are changes that open although something tells them from a field that was never set. With -inputs.strict they are
// failures; an entry goes, and a use of oracle.hole with it, when the policies refuse what it says.
var holes = []*regexp.Regexp{
	// Not being deleted: but then the machine has no name either, which every machine has.
	regexp.MustCompile(`^VirtualMachine\[metadata\] = \{.*$`),
	// The namesake of an operation that is being undone, known by its name: but every operation has a UID.
	regexp.MustCompile(`^VirtualMachineOperation\[\d+ metadata uid\] deleted$`),
}

func (c change) opens() bool {
	text := c.String()
	matches := func(o *regexp.Regexp) bool { return o.MatchString(text) }
	return slices.ContainsFunc(openers, matches) || !*strict && slices.ContainsFunc(holes, matches)
}

// draw breaks the site in a random way. What can be deleted are keys: an entry that is missing from a list is another list.
func (s site) draw(random *rand.Rand) change {
	c := change{root: s.root, path: s.path}
	if n := len(s.path); n > 0 {
		if _, key := s.path[n-1].(string); key && random.IntN(2) == 0 {
			c.remove = true
			return c
		}
	}
	for {
		c.value = replacements[random.IntN(len(replacements))]
		if list, ok := c.value.([]any); !ok || len(list) > 0 || len(s.path) > 0 {
			return c // [] for the whole list of operations would say that there are none
		}
	}
}

// sitesOf lists every place in a document, the document itself first, in an order that is always the same.
func sitesOf(root string, node any, path []any) []site {
	sites := []site{{root, slices.Clip(path)}}
	switch node := node.(type) {
	case object:
		for _, key := range slices.Sorted(maps.Keys(node)) {
			sites = append(sites, sitesOf(root, node[key], append(slices.Clip(path), key))...)
		}
	case []any:
		for i := range node {
			sites = append(sites, sitesOf(root, node[i], append(slices.Clip(path), i))...)
		}
	}
	return sites
}

// weighty are the keys that decisions rest on. Most changes are made there, not in labels and conditions.
var weighty = []any{
	"object", "spec", "type", "force", "virtualMachineName", "namespace", "metadata", "name", "uid", "status", "phase",
	"activeOperation", "undoing", "origin", "id", "runPolicy", "deletionTimestamp",
	"requestedBy", "requestedAt", "virtualMachineUID", "override", "labels", "finalizers",
}

func isWeighty(s site) bool {
	return len(s.path) == 0 || slices.Contains(weighty, s.path[len(s.path)-1])
}

// drawChanges breaks one to three of the sites, which are in groups of equal weight.
func drawChanges(random *rand.Rand, groups [][]site) []change {
	changes := make([]change, 1+random.IntN(3))
	for i := range changes {
		sites := groups[random.IntN(len(groups))]
		s := sites[random.IntN(len(sites))]
		for random.IntN(4) != 0 && !isWeighty(s) {
			s = sites[random.IntN(len(sites))]
		}
		changes[i] = s.draw(random)
	}
	return changes
}

// shown is a document as it is printed.
func shown(document any) string {
	text, err := json.Marshal(document)
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(text), bigString, fmt.Sprintf("x * %d", len(bigString)))
}

// dig follows keys through objects; the second result tells whether there is something, null included.
func dig(node any, keys ...string) (any, bool) {
	for _, key := range keys {
		o, ok := node.(object)
		if !ok {
			return nil, false
		}
		if node, ok = o[key]; !ok {
			return nil, false
		}
	}
	return node, true
}

// text gives a non-empty string, and false for everything else.
func text(node any, keys ...string) (string, bool) {
	value, _ := dig(node, keys...)
	s, _ := value.(string)
	return s, s != ""
}

// ---------------------------------------------------------------------------------------------------------------------
// The world
// ---------------------------------------------------------------------------------------------------------------------

// world answers facts as webhooks/facts does, from objects in memory, oldest first. The answers are broken, not the
// objects, so that a change reaches the policy and is not filtered away.
type world struct {
	objects []object
	changes []change
}

type reader struct {
	*world
	subject facts.Subject
}

func (w *world) For(_ *admissionv1.AdmissionRequest, subject facts.Subject) engine.Reader {
	return reader{w, subject}
}

// Read says that answers are cached unless they are asked for live, so that denials are confirmed as in production.
func (r reader) Read(_ context.Context, q engine.Query) (engine.Answer, error) {
	if q.Parent || q.Access != nil || len(q.Labels) > 0 || q.APIVersion != apiVersion {
		return engine.Answer{}, fmt.Errorf("this world cannot answer %+v", q)
	}
	v, err := engine.ValueOf(r.answer(q, r.subject))
	return engine.Answer{Value: v, Live: q.Live, ResourceVersion: "7"}, err
}

func (w *world) answer(q engine.Query, subject facts.Subject) any {
	return changed(q.Kind, w.find(q, subject), w.changes)
}

func (w *world) find(q engine.Query, subject facts.Subject) any {
	list := []any{}
	for _, o := range w.objects {
		if o["kind"] != q.Kind || !has(o, "metadata.namespace", q.Namespace) {
			continue
		}
		if q.Name != "" {
			if has(o, "metadata.name", q.Name) {
				return o
			}
			continue
		}
		if selected(o, q) && !reviewed(o, subject) {
			list = append(list, o)
		}
	}
	if q.Name != "" {
		return nil
	}
	return list
}

func selected(o object, q engine.Query) bool {
	for field, value := range q.Fields {
		if !has(o, field, value) {
			return false
		}
	}
	for field, values := range q.Except {
		if slices.ContainsFunc(values, func(value string) bool { return has(o, field, value) }) {
			return false
		}
	}
	return true
}

func reviewed(o object, subject facts.Subject) bool {
	if o["kind"] != subject.Kind.Kind {
		return false
	}
	if subject.UID != "" {
		return has(o, "metadata.uid", string(subject.UID))
	}
	return has(o, "metadata.namespace", subject.Namespace) && has(o, "metadata.name", subject.Name)
}

func has(o any, path, value string) bool {
	found, ok := text(o, strings.Split(path, ".")...)
	return ok && found == value
}

// ---------------------------------------------------------------------------------------------------------------------
// The oracle
// ---------------------------------------------------------------------------------------------------------------------

// oracle knows what the policies are for. The tables are those of the shipped policies; forms are the rows of the first.
type oracle struct {
	YieldsTo    map[string][]string `json:"yieldsTo"`
	RunPolicies map[string][]string `json:"runPolicies"`
	Phases      map[string][]string `json:"phases"`
}

// opinion is what one policy has to say of an input: that it cannot read it, or why it refuses, or neither.
type opinion struct {
	problem, reason string
	// either: it may say that it cannot read the input, or judge it without what it cannot read.
	either bool
}

// hole is the opinion of an input in which something cannot be read that the policies do not look at yet.
func (want opinion) hole(problem string) opinion {
	want.problem, want.either = problem, !*strict
	return want
}

// doubt is the opinion of an input in which something is odd that makes no difference.
func (want opinion) doubt(problem string) opinion {
	want.problem, want.either = problem, true
	return want
}

const (
	busy        = "OperationInProgress"
	missing     = "VirtualMachineNotFound"
	terminating = "VirtualMachineTerminating"
	badPolicy   = "RunPolicyForbids"
	badPhase    = "PhaseForbids"
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
		return map[string]opinion{supersede: {problem: problem}, applicability: {problem: problem}}
	}
	vm, operations := w.answer(aboutMachine(ns, name), subject), w.answer(aboutOperations(ns, name), subject)
	opinions := map[string]opinion{supersede: o.supersedes(wanted, vm, operations), applicability: o.applies(wanted, vm)}
	for policy, want := range opinions {
		found, ok := text(vm, "metadata", "name")
		switch {
		case vm == nil || want.problem != "" && !want.either || found == name:
		case ok:
			opinions[policy] = want.doubt("it is another machine")
		default:
			opinions[policy] = want.hole("the machine has no name")
		}
	}
	return opinions
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
	if _, known := o.YieldsTo[form]; !known {
		return "", "no such operation: " + form
	}
	return form, ""
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
	case !slices.Contains(leaves, wanted):
		return opinion{reason: badPolicy}
	case !slices.Contains(can, wanted):
		return opinion{reason: badPhase}
	}
	return opinion{}
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
	var anonymous, lost bool // operations without a UID; such that are being undone, by their name
	for _, operation := range list {
		form, flaw := o.running(operation)
		if flaw != "" {
			problem = flaw
		}
		isUndone := undone(operation)
		if !isUndone {
			running = append(running, form)
		}
		if _, ok := text(operation, "metadata", "uid"); !ok {
			anonymous, lost = true, lost || isUndone
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
		if !slices.Contains(o.YieldsTo[form], wanted) {
			want.reason = busy
		}
	}
	switch {
	case lost:
		return want.hole("an operation that may be undone has no uid")
	case anonymous:
		return want.doubt("an operation has no uid")
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
	if _, set := dig(operation, "metadata", "uid"); set {
		if _, ok := text(operation, "metadata", "uid"); !ok {
			return "", "uid of an operation cannot be read"
		}
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
	_, known := o.YieldsTo[doing]
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
	if uid, ok := text(operation, "metadata", "uid"); ok {
		return has(entry, "id", uid)
	}
	name, _ := text(operation, "metadata", "name")
	return has(entry, "origin", "Operation") && has(entry, "name", name)
}

// ---------------------------------------------------------------------------------------------------------------------
// The corpus
// ---------------------------------------------------------------------------------------------------------------------

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

// requestOf is the AdmissionRequest for the creation of an operation.
func requestOf(form string) object {
	o := operationOf("new", form, "")
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
		operationOf("finished", "Stop force", "Completed"), operationOf("failed", "Restart force", "Failed"),
	}
	for _, form := range slices.Sorted(maps.Keys(o.YieldsTo)) {
		ready := o.phaseFor(form)
		with := func(vm object, more ...object) []object { return slices.Concat(others, more, []object{vm}) }
		add(allowed, form, form+" on an idle machine", with(machineOf(free, ready, nil))...)
		add(allowed, form, form+" during the undoing of another", with(
			machineOf(free, ready, undoingOf("uid-lost", "lost")), operationOf("lost", "Stop force", "InProgress"))...)
		add(busyNamesake, form, form+" beside a namesake of what is undone", with(
			machineOf(free, ready, undoingOf("uid-of-an-earlier-one", "stop")), operationOf("stop", "Stop force", "Pending"))...)
		for running, yields := range o.YieldsTo {
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
			case slices.Contains(o.YieldsTo[holder.kind], form):
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
				add(badPolicy, form, form+" under "+runPolicy, with(machineOf(runPolicy, ready, nil))...)
			}
		}
		for phase, can := range o.Phases {
			if !slices.Contains(can, form) {
				add(badPhase, form, form+" while "+phase, with(machineOf(free, phase, nil))...)
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
	for _, q := range []engine.Query{aboutMachine(namespace, machineName), aboutOperations(namespace, machineName)} {
		sites := sitesOf(q.Kind, b.world.find(q, facts.Subject{}), nil)
		groups = append(groups, sites)
		if len(sites) > 1 {
			groups = append(groups, sites)
		}
	}
	return groups
}

// ---------------------------------------------------------------------------------------------------------------------
// The gate
// ---------------------------------------------------------------------------------------------------------------------

// compile gives the shipped policies, changed for the test. The deadline is long, because
// a busy machine must not make errors that look like those that are looked for.
func compile(t *testing.T, change func(*v1alpha1.RegoPolicy)) *catalog.Set {
	t.Helper()
	shipped, err := policies.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	for i := range shipped {
		shipped[i].Spec.TimeoutMilliseconds = 60_000
		change(&shipped[i])
	}
	set, err := catalog.Compile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func asShipped(*v1alpha1.RegoPolicy) {}

func onErrorAllow(p *v1alpha1.RegoPolicy) { p.Spec.OnError = v1alpha1.OnErrorAllow }

// unguarded takes the policies' valid_input away.
func unguarded(p *v1alpha1.RegoPolicy) {
	for i := range p.Spec.Modules {
		m := &p.Spec.Modules[i]
		m.Source = strings.Replace(m.Source, "\nvalid_input if {\n", "\nvalid_input if true\n\n_once_valid_input if {\n", 1)
	}
}

// oracleOf reads the tables out of the shipped policies.
func oracleOf(t *testing.T) *oracle {
	t.Helper()
	shipped, err := policies.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	o := &oracle{}
	for _, p := range shipped {
		if p.Spec.Parameters == nil || p.Name != supersede && p.Name != applicability {
			continue
		}
		if err := json.Unmarshal(p.Spec.Parameters.Raw, o); err != nil {
			t.Fatal(err)
		}
	}
	if len(o.YieldsTo) != 9 || len(o.RunPolicies) == 0 || len(o.Phases) == 0 {
		t.Fatalf("the shipped tables are not where they are looked for: %+v", o)
	}
	return o
}

// recorder that keeps nothing.
var recorder = webhooks.NewRecorder(prometheus.NewRegistry(), nil, false)

func gateOver(set *catalog.Set, source webhooks.FactSource) *webhooks.Gate {
	return webhooks.NewGate(set, source, recorder, func() time.Time { return decidedAt })
}

func decode(request any) (*webhooks.Review, error) {
	body, err := json.Marshal(object{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
	if err != nil {
		return nil, err
	}
	return webhooks.Decode(body)
}

// trial is one broken input and what became of it.
type trial struct {
	base     *base
	changes  []change
	request  object
	world    *world
	rejected error // no AdmissionReview: HTTP 400, and the API server refuses
	expected map[string]opinion
	response *admissionv1.AdmissionResponse
}

func (o *oracle) try(ctx context.Context, set *catalog.Set, b *base, changes []change) *trial {
	request, _ := changed("request", b.request, changes).(object)
	tr := &trial{base: b, changes: changes, request: request, world: &world{objects: b.world.objects, changes: changes}}
	review, err := decode(request)
	if err != nil {
		tr.rejected = err
		return tr
	}
	tr.expected = o.expect(request, tr.world, review.Subject())
	tr.response = gateOver(set, tr.world).Validate(ctx, review)
	return tr
}

// unreadable tells whether some policy cannot read the input.
func (tr *trial) unreadable() bool {
	for _, e := range tr.expected {
		if e.problem != "" && !e.either {
			return true
		}
	}
	return false
}

var objected = regexp.MustCompile(`^\[([a-z-]+)/([A-Za-z]+)\]`)

// said sorts objections by policy: the reasons it gave.
func said(texts []string) map[string][]string {
	by := map[string][]string{}
	for _, t := range texts {
		if m := objected.FindStringSubmatch(t); m != nil && !slices.Contains(by[m[1]], m[2]) {
			by[m[1]] = append(by[m[1]], m[2])
		}
	}
	return by
}

// misread are the causes of an error that may come of an input that cannot be read.
var misread = []string{string(engine.InputNotUnderstood), string(engine.EvaluationFailed)}

// finding is a difference between what a policy said and what it must say. It is a hole if something passes because it
// could not be read, or that is not to pass.
type finding struct {
	text string
	hole bool
}

// check holds the response against the oracle, policy by policy, so that no hole hides behind another policy's denial.
func (tr *trial) check(errorsPass bool) *finding {
	if tr.rejected != nil {
		if !slices.ContainsFunc(tr.changes, func(c change) bool { return c.root == "request" && c.path[0] != "object" }) {
			return &finding{text: fmt.Sprintf("the object is no reason to reject the review: %v", tr.rejected)}
		}
		return nil
	}
	var refusals []string
	if !tr.response.Allowed {
		for _, c := range tr.response.Result.Details.Causes {
			refusals = append(refusals, c.Message)
		}
	}
	refused, warned := said(refusals), said(tr.response.Warnings)
	for _, policy := range slices.Sorted(maps.Keys(tr.expected)) {
		want := tr.expected[policy]
		f := want.against(refused[policy], warned[policy], errorsPass)
		if f != nil && want.either {
			f = opinion{reason: want.reason}.against(refused[policy], warned[policy], errorsPass)
		}
		if f != nil {
			f.text = fmt.Sprintf("%s: it refuses for %v and warns of %v, %s", policy, refused[policy], warned[policy], f.text)
			return f
		}
	}
	if tr.response.Allowed != (len(refused) == 0) {
		return &finding{text: "the response is not what the policies say", hole: tr.response.Allowed}
	}
	if tr.turned() && len(tr.openers()) == 0 {
		return &finding{text: "no change that could do this turned the denial into an allow", hole: true}
	}
	return nil
}

// turned tells whether the request is allowed, with nothing to be said against it, and would not be without the changes.
func (tr *trial) turned() bool {
	return tr.response.Allowed && len(tr.response.Warnings) == 0 && tr.base.class != allowed
}

// openers are the changes that may have turned a denial into an allow.
func (tr *trial) openers() []string {
	var found []string
	for _, c := range tr.changes {
		if c.opens() {
			found = append(found, digits.ReplaceAllString(c.String(), "n"))
		}
	}
	return found
}

var digits = regexp.MustCompile(`\d+`)

// against compares an opinion with what the policy said.
func (want opinion) against(refused, warned []string, errorsPass bool) *finding {
	erred := func(reasons []string) bool {
		return slices.ContainsFunc(reasons, func(r string) bool { return slices.Contains(misread, r) })
	}
	switch {
	case want.problem == "" && want.reason == "":
		if len(refused)+len(warned) > 0 {
			return &finding{text: "but there is nothing to object to"}
		}
	case want.problem == "":
		if !slices.Equal(refused, []string{want.reason}) || len(warned) > 0 {
			return &finding{text: "but must refuse for " + want.reason, hole: len(refused) == 0}
		}
	case !errorsPass:
		if len(refused) == 0 || len(warned) > 0 {
			return &finding{text: "but must refuse: " + want.problem, hole: len(refused) == 0}
		}
	default: // an error passes, but not in silence; a denial is as good
		if erred(refused) || len(refused) == 0 && !erred(warned) {
			return &finding{text: "but must warn of an error: " + want.problem, hole: len(refused) == 0}
		}
	}
	return nil
}

// String is everything that is needed to see what happened, and to see it again.
func (tr *trial) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "base: %s\n", tr.base.name)
	for _, c := range tr.changes {
		fmt.Fprintf(&b, "change: %s\n", c)
	}
	fmt.Fprintf(&b, "expected: %+v\nrequest: %s\n", tr.expected, shown(tr.request))
	if tr.response != nil {
		fmt.Fprintf(&b, "response: allowed %v, warnings %q, result %s\n", tr.response.Allowed, tr.response.Warnings, shown(tr.response.Result))
	}
	for _, q := range []engine.Query{aboutMachine(namespace, machineName), aboutOperations(namespace, machineName)} {
		fmt.Fprintf(&b, "answer for %s: %s\n", q.Kind, shown(tr.world.answer(q, facts.Subject{})))
	}
	return b.String()
}

// ---------------------------------------------------------------------------------------------------------------------
// The tests
// ---------------------------------------------------------------------------------------------------------------------

// drawing chooses bases, as many of each class as of any other.
type drawing struct {
	classes []string
	bases   map[string][]*base
}

func drawingOf(all []*base) *drawing {
	d := &drawing{bases: map[string][]*base{}}
	for _, b := range all {
		d.bases[b.class] = append(d.bases[b.class], b)
	}
	d.classes = slices.Sorted(maps.Keys(d.bases))
	return d
}

// number gives the i-th of all broken inputs; each has a sequence of its own, whatever else runs.
func (d *drawing) number(i int) (*base, []change) {
	random := rand.New(rand.NewPCG(*seed, uint64(i)))
	bases := d.bases[d.classes[random.IntN(len(d.classes))]]
	b := bases[random.IntN(len(bases))]
	return b, drawChanges(random, b.sites)
}

// inParallel runs f for 0 to n-1 and stops early once the test has failed often enough to be understood.
func inParallel(t *testing.T, n int, f func(i int) (failure string)) {
	t.Helper()
	var next, failures atomic.Int64
	var all sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failures.Load() < 5; i = int(next.Add(1)) - 1 {
				if failure := f(i); failure != "" {
					failures.Add(1)
					t.Errorf("number %d of -inputs.seed=%d: %s", i, *seed, failure)
				}
			}
		})
	}
	all.Wait()
}

// tally counts what became of the trials.
type tally struct {
	mu sync.Mutex
	of map[string]int
}

func (c *tally) add(keys ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	for _, key := range keys {
		c.of[key]++
	}
}

// atLeast fails the test if something happened too rarely for the test to say anything about it.
func (c *tally) atLeast(t *testing.T, n int, least map[string]float64) {
	t.Helper()
	for key, share := range least {
		if n >= 1000 && float64(c.of[key]) < share*float64(n) {
			t.Errorf("%q happened %d times of %d, which is not enough to be a test", key, c.of[key], n)
		}
	}
}

func (c *tally) log(t *testing.T, n int) {
	t.Helper()
	t.Logf("of %d:", n)
	for _, key := range slices.Sorted(maps.Keys(c.of)) {
		t.Logf("%6d %s", c.of[key], key)
	}
}

// Names of what is counted.
const (
	countRejected   = "rejected as no review"
	countAllowed    = "allowed"
	countDenied     = "denied"
	countErred      = "not readable and refused"
	countPassed     = "not readable and passed with a warning"
	countUnreadable = "not readable"
	countTurned     = "readable, denied before and allowed now"
	countTightened  = "readable, allowed before and denied now"
)

func (c *tally) trial(tr *trial) {
	if tr.rejected != nil {
		c.add(countRejected)
		return
	}
	keys := []string{countDenied}
	switch {
	case tr.response.Allowed && tr.unreadable():
		keys[0] = countPassed
	case tr.response.Allowed:
		keys[0] = countAllowed
	case tr.unreadable():
		keys[0] = countErred
	default:
		for _, want := range tr.expected {
			if want.reason != "" {
				keys = append(keys, want.reason)
			}
		}
	}
	if tr.unreadable() {
		keys = append(keys, countUnreadable)
	}
	if tr.turned() {
		keys = append(keys, countTurned)
		for _, opener := range tr.openers() {
			keys = append(keys, countTurned+" by "+opener)
		}
	}
	if tr.base.class == allowed && !tr.unreadable() && !tr.response.Allowed {
		keys = append(keys, countTightened)
	}
	c.add(keys...)
}

// Every policy that judges operations must be in the oracle, or the tests would say nothing about it.
func TestOracleKnowsThePolicies(t *testing.T) {
	review, err := decode(requestOf("Stop"))
	if err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, s := range compile(t, asShipped).Select(t.Context(), review.Request, reader{world: &world{}}) {
		if s.Validates() {
			asked = append(asked, s.Name())
		}
	}
	if known := []string{applicability, supersede}; !slices.Equal(asked, known) {
		t.Errorf("operations are judged by %v, and the oracle knows %v: teach it", asked, known)
	}
}

// Unbroken inputs get what their class says, and every reason is met by every operation that it can be met by.
func TestCorpus(t *testing.T) {
	o, set := oracleOf(t), compile(t, asShipped)
	forms := map[string]map[string]bool{}
	all := corpus(o)
	for _, b := range all {
		if forms[b.class] == nil {
			forms[b.class] = map[string]bool{}
		}
		forms[b.class][b.form] = true
		tr := o.try(t.Context(), set, b, nil)
		if f := tr.check(false); f != nil || tr.rejected != nil || tr.unreadable() || tr.response.Allowed != (b.class == allowed) {
			t.Errorf("%v, class %s, %+v\n%s", tr.rejected, b.class, f, tr)
		}
	}
	for _, class := range []string{allowed, busyOperation, busyNamesake, busyDeletion, missing, terminating, badPolicy, badPhase} {
		if len(forms[class]) != len(o.YieldsTo) {
			t.Errorf("%s: only the operations %v", class, slices.Sorted(maps.Keys(forms[class])))
		}
	}
	if len(forms[busyHolder]) < len(o.YieldsTo)-1 { // a forced Stop takes the place of everything that is not forced
		t.Errorf("%s: only the operations %v", busyHolder, slices.Sorted(maps.Keys(forms[busyHolder])))
	}
	t.Logf("%d bases", len(all))
}

func TestBrokenInputsAreNeverAllowed(t *testing.T) {
	for name, tc := range map[string]struct {
		n          int
		change     func(*v1alpha1.RegoPolicy)
		errorsPass bool
		least      map[string]float64
	}{
		"onError Deny":  {*count, asShipped, false, map[string]float64{countErred: 0.3, countPassed: 0}},
		"onError Allow": {*count / 2, onErrorAllow, true, map[string]float64{countErred: 0.02, countPassed: 0.1}},
	} {
		t.Run(name, func(t *testing.T) {
			o, set := oracleOf(t), compile(t, tc.change)
			d := drawingOf(corpus(o))
			var c tally
			inParallel(t, tc.n, func(i int) string {
				b, changes := d.number(i)
				tr := o.try(t.Context(), set, b, changes)
				if f := tr.check(tc.errorsPass); f != nil {
					return f.text + "\n" + tr.String()
				}
				c.trial(tr)
				return ""
			})
			c.log(t, tc.n)
			c.atLeast(t, tc.n, tc.least)
			c.atLeast(t, tc.n, map[string]float64{
				countRejected: 0.01, countAllowed: 0.02, countDenied: 0.15, countUnreadable: 0.3, countTurned: 0.001, countTightened: 0.0005,
				busy: 0.05, missing: 0.02, terminating: 0.01, badPolicy: 0.01, badPhase: 0.01,
			})
			if !tc.errorsPass && c.of[countPassed] > 0 {
				t.Errorf("%d passed that cannot be read", c.of[countPassed])
			}
		})
	}
}

// The same inputs find the holes of policies whose valid_input is true: the test can fail.
func TestHolesAreFound(t *testing.T) {
	o, set := oracleOf(t), compile(t, unguarded)
	d := drawingOf(corpus(o))
	n := min(*count, 2000)
	var c tally
	inParallel(t, n, func(i int) string {
		b, changes := d.number(i)
		tr := o.try(t.Context(), set, b, changes)
		if f := tr.check(false); f != nil && f.hole {
			c.add("holes")
			if tr.response.Allowed {
				c.add("allowed")
			}
		}
		return ""
	})
	c.log(t, n)
	c.atLeast(t, n, map[string]float64{"holes": 0.02, "allowed": 0.01})
}

// ---------------------------------------------------------------------------------------------------------------------
// The mutating endpoint
// ---------------------------------------------------------------------------------------------------------------------

// stamps are the fields of an operation's spec that only the policy `defaults` writes.
var stamps = []string{"requestedBy", "requestedAt", "virtualMachineUID", "override"}

// stampedByClient is an operation whose client has filled in what is not theirs to say.
func stampedByClient() object {
	o := operationOf("new", "Stop", "")
	maps.Copy(o["spec"].(object), object{
		"requestedBy": object{"username": "mallory", "groups": []any{"system:masters"}}, "requestedAt": "2000-01-01T00:00:00.000000000Z",
		"virtualMachineUID": "uid-of-another", "override": supersede + "; uid=; until=2026-11-20T11:00:00Z; drill",
	})
	return o
}

// writes are the requests that the policy `defaults` meets, on a world with the machine and on one without.
func writes() []*base {
	operation, machine := stampedByClient(), machineOf("Manual", "Running", nil)
	bare := operationOf("new", "Stop", "")
	delete(bare["metadata"].(object), "labels")
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
	n := *count / 5
	var c tally
	inParallel(t, n, func(i int) string {
		b, changes := d.number(i)
		request := changed("request", b.request, changes).(object)
		review, err := decode(request)
		if err != nil {
			return fmt.Sprintf("%v\n%v\n%s", err, changes, shown(request))
		}
		response := gateOver(set, b.world).Mutate(t.Context(), review)
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
	c.atLeast(t, n, map[string]float64{"patched": 0.5, "stamped at CREATE": 0.1, "stamped at UPDATE": 0.1, "without spec": 0.02})
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
	if request["operation"] == "CREATE" {
		c.add("stamped at CREATE")
		want["requestedBy"] = request["userInfo"]
		want["requestedAt"] = decidedAt.Format(engine.TimeFormat)
		name, _ := text(spec, "virtualMachineName")
		vm := w.find(aboutMachine(namespace, name), facts.Subject{})
		if uid, ok := text(vm, "metadata", "uid"); ok && name != "" {
			want["virtualMachineUID"] = uid
		}
	} else {
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

func canonical(document any) []byte {
	text, err := json.Marshal(document)
	if err != nil {
		return nil
	}
	return text
}
