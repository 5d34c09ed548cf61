package inputs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
//   - Every field that the decision rests on is there and of its type, or its absence has a meaning of its own. These
//     absences have one: force (not forced), status and status.phase (not looked at yet: Pending), status.activeOperation
//     (idle), status.undoing (nothing is being undone), metadata.deletionTimestamp (not being deleted), an operation's
//     metadata.uid (it is then known by its name).
//   - The tables in the shipped parameters allow what the input then says.
//
// So deleting the deletionTimestamp of a machine, or the claim on it, may turn a denial into an allow: nothing tells such
// an input from one where the field was never set. No other change may: a replacement is never a valid value of a field
// that has a list of values, objects are never taken out of the list of operations, and the list is never replaced by [].
//
// Whatever is not readable must be an error of every policy that reads it. What is readable must get the oracle's verdict,
// reason for reason, so that the policies cannot pass by refusing everything.
//
// Fields that choose which policies are asked (operation, kind, resource, subResource) stay as they are: without them it
// is another request.

var (
	count = flag.Int("inputs.count", 10_000, "how many mutated requests to validate; a fifth as many are mutated by the policies")
	seed  = flag.Uint64("inputs.seed", 1, "what the mutations are drawn from")
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

// draw breaks the site in a random way. What can be deleted are keys: an entry that is missing from a list is another list.
func (s site) draw(random *rand.Rand) change {
	c := change{root: s.root, path: s.path}
	if n := len(s.path); n > 0 {
		if _, key := s.path[n-1].(string); key && random.IntN(3) == 0 {
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

// weighty are the keys that decisions rest on. Half of the changes are made there, or most would hit labels and conditions.
var weighty = []any{
	"object", "spec", "type", "force", "virtualMachineName", "namespace", "metadata", "name", "uid", "status", "phase",
	"activeOperation", "undoing", "origin", "id", "runPolicy", "deletionTimestamp",
	"requestedBy", "requestedAt", "virtualMachineUID", "override", "labels", "finalizers",
}

func isWeighty(s site) bool {
	return len(s.path) == 0 || slices.Contains(weighty, s.path[len(s.path)-1]) || reflect.TypeOf(s.path[len(s.path)-1]).Kind() == reflect.Int
}

// drawChanges breaks one to three of the sites, which are in groups of equal weight.
func drawChanges(random *rand.Rand, groups [][]site) []change {
	changes := make([]change, 1+random.IntN(3))
	for i := range changes {
		sites := groups[random.IntN(len(groups))]
		s := sites[random.IntN(len(sites))]
		for random.IntN(2) == 0 && !isWeighty(s) {
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

func has(o object, path, value string) bool {
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
type opinion struct{ problem, reason string }

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
	vm := w.answer(engine.Query{Kind: machineKind, Namespace: ns, Name: name}, subject)
	operations := w.answer(engine.Query{
		Kind: operationKind, Namespace: ns, Fields: map[string]string{"spec.virtualMachineName": name},
		Except: map[string][]string{"status.phase": {"Completed", "Failed"}},
	}, subject)
	return map[string]opinion{supersede: o.supersedes(wanted, vm, operations), applicability: o.applies(wanted, vm)}
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
	phase, ok := phaseOf(vm, "Pending")
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

// phaseOf gives status.phase. What has no status or an empty phase was not looked at yet.
func phaseOf(o any, initial string) (string, bool) {
	status, ok := dig(o, "status")
	if !ok {
		return initial, true
	}
	if _, ok := status.(object); !ok {
		return "", false
	}
	phase, ok := dig(status, "phase")
	if !ok || phase == "" {
		return initial, true
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
	for _, form := range running { // Delete has no row: a deletion yields to nothing
		if !slices.Contains(o.YieldsTo[form], wanted) {
			return opinion{reason: busy}
		}
	}
	return opinion{}
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
		return has(entry.(object), "id", uid)
	}
	name, _ := text(operation, "metadata", "name")
	return has(entry.(object), "origin", "Operation") && has(entry.(object), "name", name)
}
