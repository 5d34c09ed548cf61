package policy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
)

// check returns the changes that must not be made, with the reasons. Changes that have just passed are not checked
// again, which takes seconds: a replica that becomes leader has usually vetted the same changes.
func (c *rollout) check(ctx context.Context) map[string]string {
	if len(c.changes) == 0 {
		return nil
	}
	these := c.identity()
	if these == c.passed {
		return nil
	}
	refused := c.refusals(ctx)
	if len(refused) == 0 {
		c.passed = these
	}
	return refused
}

// identity identifies the changes by their inputs and by their names, since a policy that could not be read has no
// change.
func (c *rollout) identity() string {
	inputs := c.inputs(func(live *unstructured.Unstructured) any { return live.GetResourceVersion() })
	for _, change := range c.changes {
		inputs += " " + change.name
	}
	return inputs
}

// refusals evaluates the policies after the changes, and returns the changes that must not be made, with the reasons:
// those that do not compile or fail their tests, and those of libraries that would break a working policy which does
// not change with them.
func (c *rollout) refusals(ctx context.Context) map[string]string {
	refused := map[string]string{}
	var already map[string]error
	for more := true; more; more = c.refuseFailing(ctx, refused) {
		broken := c.Checker.Check(ctx, c.world(refused, ""))
		if len(broken) > 0 && already == nil {
			already = c.Checker.Check(ctx, copies(c.typed))
		}
		for c.refuseBroken(broken, refused) || c.refuseBreaking(ctx, broken, already, refused) {
			broken = c.Checker.Check(ctx, c.world(refused, ""))
		}
	}
	return refused
}

// refuseFailing rejects changes after which a policy's tests fail. Changes whose tests cannot be run are held back.
func (c *rollout) refuseFailing(ctx context.Context, refused map[string]string) bool {
	more := false
	for _, change := range c.changes {
		if !change.takesEffect(refused) || !c.rewritten(change) {
			continue
		}
		var wrong error
		wrong, change.unsure = c.Checker.RunTests(ctx, c.world(refused, ""), change.name)
		if wrong = cmp.Or(wrong, change.unsure); wrong != nil {
			refused[change.name] = c.because(change.name, wrong)
			more = true
		}
	}
	return more
}

// rewritten reports whether a change affects what tests cover.
func (c *rollout) rewritten(change *change) bool {
	was := c.typed[change.name]
	if was == nil {
		return true
	}
	a, b := &was.Spec, &change.after.Spec
	return a.Package != b.Package || a.Library != b.Library || !slices.Equal(a.Modules, b.Modules) || !slices.Equal(a.Tests, b.Tests)
}

// refuseBroken rejects changes to policies that would not compile.
func (c *rollout) refuseBroken(broken map[string]error, refused map[string]string) bool {
	more := false
	for _, change := range c.changes {
		if err := broken[change.name]; err != nil && change.takesEffect(refused) {
			refused[change.name] = c.because(change.name, err)
			more = true
		}
	}
	return more
}

// because adds to what is wrong with a policy after the changes that users have edited it, and the way out.
func (c *rollout) because(policy string, err error) string {
	i := slices.IndexFunc(c.changes, func(change *change) bool { return change.name == policy && change.shipped != nil })
	if i < 0 || c.typed[policy] == nil {
		return err.Error()
	}
	edited := shipping.Edited(c.typed[policy], c.changes[i].shipped)
	if len(edited) == 0 {
		return err.Error()
	}
	return fmt.Sprintf("%v\nUsers have edited %s. Adapt the edit to the release, or reset it: %s", err, strings.Join(edited, ", "),
		commands.Line("kubectl", "sallyport", "policies", "reset", policy))
}

// refuseBreaking rejects changes to libraries that break another policy.
func (c *rollout) refuseBreaking(ctx context.Context, broken, already map[string]error, refused map[string]string) bool {
	var libraries []*change
	for _, change := range c.changes {
		if was := c.typed[change.name]; was != nil && was.Spec.Library && (change.takesEffect(refused) || change.removes(refused)) {
			libraries = append(libraries, change)
		}
	}
	for _, victim := range slices.Sorted(maps.Keys(broken)) {
		if already[victim] != nil || len(libraries) == 0 {
			continue
		}
		why := fmt.Sprintf("RegoPolicy %s would break: %s", victim, c.because(victim, broken[victim]))
		for _, library := range libraries {
			if c.Checker.Check(ctx, c.world(refused, library.name))[victim] == nil {
				refused[library.name] = why
				return true
			}
		}
		for _, library := range libraries { // it takes more than one of them
			refused[library.name] = why
		}
		return true
	}
	return false
}

func (c *change) removes(refused map[string]string) bool {
	return c.after == nil && refused[c.name] == ""
}

// takesEffect reports whether a change is applied and leaves a policy.
func (c *change) takesEffect(refused map[string]string) bool {
	return c.after != nil && c.shipped != nil && refused[c.name] == ""
}

// world returns all policies after the changes, except the rejected ones and one more.
func (c *rollout) world(refused map[string]string, without string) []v1alpha1.RegoPolicy {
	all := maps.Clone(c.typed)
	for _, change := range c.changes {
		switch {
		case refused[change.name] != "" || change.name == without:
		case change.after == nil:
			delete(all, change.name)
		default:
			all[change.name] = change.after
		}
	}
	return copies(all)
}

func copies(all map[string]*v1alpha1.RegoPolicy) (policies []v1alpha1.RegoPolicy) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		policies = append(policies, *all[name].DeepCopy())
	}
	return policies
}
