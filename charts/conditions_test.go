package charts_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"

	releaseasked "sallyport.dev/sallyport/cmd/sallyport/bundled"
	policyregistration "sallyport.dev/sallyport/reconcilers/policy/registration"
	"sallyport.dev/sallyport/test/support/shipped"
)

// matchConditionsOf are those of all webhooks, by a name: of the chart's own, of the shipped policies on other kinds, and of the floor.
func matchConditionsOf(t *testing.T) map[string]string {
	t.Helper()
	mutating, validating := configurations(t)
	var all []policyregistration.Policy
	for _, p := range shipped.Set(t).Policies() {
		all = append(all, releaseasked.About(p))
	}
	changes, judges, _ := releaseasked.Registration().Preview(mutating, validating, all)
	found := map[string]string{}
	add := func(webhook string, conditions []admissionregistrationv1.MatchCondition) {
		for _, c := range conditions {
			found[webhook+" "+c.Name] = c.Expression
		}
	}
	for _, w := range slices.Concat(mutating.Webhooks, changes.Webhooks) {
		add(w.Name, w.MatchConditions)
	}
	for _, w := range slices.Concat(validating.Webhooks, judges.Webhooks) {
		add(w.Name, w.MatchConditions)
	}
	rendered := render(t, "floor: {enabled: true}")
	for name := range floors {
		floor := find(rendered, "ValidatingAdmissionPolicy", name)
		for _, c := range at(floor.Object, "spec", "matchConditions").([]any) {
			found["floor "+name+" "+at(c, "name").(string)] = at(c, "expression").(string)
		}
	}
	return found
}

// searched is a list that counts the entries that are looked at to find another in it, which CEL's own cost leaves out.
type searched struct {
	traits.Lister
	entries *uint64
}

func (s searched) Contains(value ref.Val) ref.Val {
	*s.entries += uint64(s.Size().(types.Int))
	return s.Lister.Contains(value)
}

// attributes are those of an update of an object in which one list has n entries, all of them as before, so that each is looked at.
func attributes(list string, n int, entries *uint64) map[string]any {
	counted := func(all []any) any {
		return searched{types.DefaultTypeAdapter.NativeToValue(all).(traits.Lister), entries}
	}
	object := func() map[string]any {
		metadata := map[string]any{
			"name": "x-01234567-0123-0123-0123-0123456789ab", "uid": "u", "labels": map[string]any{"sallyport.dev/deletion-protection": "enabled"},
			"annotations": map[string]any{},
		}
		spec := map[string]any{"replicas": int64(3), "group": "sallyport.dev"}
		o := map[string]any{"apiVersion": "v1", "kind": "Thing", "metadata": metadata, "spec": spec}
		owners, texts, things := []any{}, []any{}, []any{}
		entries := map[string]any{}
		for i := range n {
			name := fmt.Sprint("sallyport.dev/", i)
			owners = append(owners, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name})
			texts, things, entries[name] = append(texts, name), append(things, map[string]any{"name": name}), "x"
		}
		switch list {
		case "ownerReferences":
			metadata[list] = counted(owners)
		case "finalizers":
			metadata[list] = counted(texts)
		case "labels", "annotations":
			maps.Copy(metadata[list].(map[string]any), entries)
		case "a list in the spec":
			spec["list"] = counted(things)
		case "fields of the spec":
			maps.Copy(spec, entries)
		case "fields of the object":
			maps.Copy(o, entries)
		}
		return o
	}
	groups := []any{}
	for i := range n {
		if list == "groups" {
			groups = append(groups, fmt.Sprint("group-", i))
		}
	}
	resource := map[string]any{"group": "apps", "version": "v1", "resource": "deployments"}
	return map[string]any{
		"object": object(), "oldObject": object(), "authorizer": nil, "request": map[string]any{
			"operation": "UPDATE", "name": "x-01234567-0123-0123-0123-0123456789ab", "namespace": "ns", "resource": resource, "subResource": "",
			"userInfo": map[string]any{"username": "somebody", "groups": counted(groups)},
		},
	}
}

// What the API server evaluates for each request costs no more than in proportion to any list of the object: 350 owners, each searched
// among 350, have taken 0.3 s.
func TestMatchConditionsGrowNoFasterThanTheirLists(t *testing.T) {
	compiler := cel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	for name, expression := range matchConditionsOf(t) {
		if strings.Contains(name, "unchecked") {
			continue // it asks the authorizer, about nothing that the object says
		}
		result := compiler.CompileCELExpression(
			&matchconditions.MatchCondition{Expression: expression}, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
		if result.Error != nil {
			t.Fatalf("%s: %v", name, result.Error)
		}
		cost := func(list string, n int) uint64 {
			entries := uint64(0)
			_, details, err := result.Program.Eval(attributes(list, n, &entries))
			if err != nil {
				t.Fatalf("%s, %d %s: %v", name, n, list, err)
			}
			return *details.ActualCost() + entries
		}
		for _, list := range []string{
			"ownerReferences", "finalizers", "labels", "annotations", "a list in the spec", "fields of the spec", "fields of the object", "groups",
		} {
			for _, n := range []int{100, 1000} {
				// Up to 32 owners are searched one by one, which is bounded.
				if few, many := cost(list, n/10), cost(list, n); many > 12*few+5000 || n == 1000 && many > 12*few+500 {
					t.Errorf("%s: %d %s cost %d, and %d cost %d", name, n/10, list, few, n, many)
				}
			}
		}
	}
}

// The policies on KubeVirt are evaluated for nothing else than what they can deny.
func TestMatchConditionsOfThePoliciesOnKubeVirt(t *testing.T) {
	compiler := cel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	all := matchConditionsOf(t)
	spec := func(fields map[string]any) map[string]any { return map[string]any{"spec": fields} }
	asks := func(actions ...string) map[string]any {
		requests := make([]any, len(actions))
		for i, action := range actions {
			requests[i] = map[string]any{"action": action}
		}
		return map[string]any{"status": map[string]any{"stateChangeRequests": requests}}
	}
	const machines, definitions = "kubevirt-machines.policies.sallyport.dev match-0.sallyport.dev/may-end-a-machine", "kubevirt-definitions.policies.sallyport.dev match-0.sallyport.dev/is-of-kubevirt"
	const pools = "kubevirt-pools.policies.sallyport.dev match-0.sallyport.dev/may-remove-members"
	five := spec(map[string]any{"replicas": 5})
	always, manual := spec(map[string]any{"runStrategy": "Always"}), spec(map[string]any{"runStrategy": "Manual"})
	for name, tc := range map[string]struct {
		condition, resource, part string
		object, old               map[string]any // a deletion without the object
		want                      bool
	}{
		"a deletion":                     {machines, "virtualmachines", "", nil, always, true},
		"halted":                         {machines, "virtualmachines", "", spec(map[string]any{"runStrategy": "Halted"}), always, true},
		"halted by the older field":      {machines, "virtualmachines", "", spec(map[string]any{"running": false}), spec(map[string]any{"running": true}), true},
		"started":                        {machines, "virtualmachines", "", always, spec(map[string]any{"running": false}), false},
		"another strategy":               {machines, "virtualmachines", "", manual, always, false},
		"halted before":                  {machines, "virtualmachines", "", spec(map[string]any{"running": false}), spec(map[string]any{"running": false}), false},
		"a stop":                         {machines, "virtualmachines", "status", asks("Stop"), map[string]any{}, true},
		"a restart":                      {machines, "virtualmachines", "status", asks("Stop", "Start"), asks(), true},
		"a start":                        {machines, "virtualmachines", "status", asks("Start"), map[string]any{}, false},
		"a restart whose stop is done":   {machines, "virtualmachines", "status", asks("Start"), asks("Stop", "Start"), false},
		"a stop that is done":            {machines, "virtualmachines", "status", asks(), asks("Stop"), false},
		"another change of the status":   {machines, "virtualmachines", "status", asks("Stop"), asks("Stop"), false},
		"a definition of KubeVirt":       {definitions, "customresourcedefinitions", "", nil, spec(map[string]any{"group": "kubevirt.io"}), true},
		"a definition of CDI":            {definitions, "customresourcedefinitions", "", nil, spec(map[string]any{"group": "cdi.kubevirt.io"}), true},
		"a definition of another domain": {definitions, "customresourcedefinitions", "", nil, spec(map[string]any{"group": "notkubevirt.io"}), false},
		"the KubeVirt object":            {definitions, "kubevirts", "", nil, spec(map[string]any{}), true},
		"a pool is scaled":               {pools, "virtualmachinepools", "scale", spec(map[string]any{"replicas": 3}), five, true},
		"a pool is scaled to none":       {pools, "virtualmachinepools", "scale", spec(map[string]any{}), five, true},
		"a pool goes on":                 {pools, "virtualmachinepools", "", five, spec(map[string]any{"replicas": 5, "paused": true}), true},
		"a pool selects others":          {pools, "virtualmachinepools", "", spec(map[string]any{"replicas": 5, "scaleInStrategy": map[string]any{}}), five, true},
		"a pool with autohealing":        {pools, "virtualmachinepools", "", spec(map[string]any{"replicas": 5, "autohealing": map[string]any{}}), five, true},
		"another change of a pool":       {pools, "virtualmachinepools", "", spec(map[string]any{"replicas": 5, "maxUnavailable": 1}), five, false},
	} {
		operation := "UPDATE"
		var object any = tc.object
		if tc.object == nil {
			operation, object = "DELETE", nil
		}
		compiled := compiler.CompileCELExpression(
			&matchconditions.MatchCondition{Expression: all[tc.condition]}, cel.OptionalVariableDeclarations{HasAuthorizer: true}, environment.StoredExpressions)
		if compiled.Error != nil {
			t.Fatalf("%s: %v", tc.condition, compiled.Error)
		}
		got, _, err := compiled.Program.Eval(map[string]any{
			"object": object, "oldObject": tc.old, "authorizer": nil,
			"request": map[string]any{"operation": operation, "subResource": tc.part, "resource": map[string]any{"resource": tc.resource}},
		})
		if err != nil || got.Value() != tc.want {
			t.Errorf("%s: evaluated is %v, %v, want %v", name, got, err, tc.want)
		}
	}
}
