package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/reconcilers/policy"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/engine"
	"sallyport.dev/sallyport/webhooks/facts"
	"sallyport.dev/sallyport/webhooks/grants"
	"sallyport.dev/sallyport/webhooks/testrun"
)

// leastTestRunMemory is enough for the test run of the shipped policies.
var leastTestRunMemory = resource.MustParse("64Mi")

// validateTestRuns checks the limits of test runs.
func (o *Options) validateTestRuns() error {
	if o.TestRunMemory.Cmp(leastTestRunMemory) < 0 {
		return fmt.Errorf("invalid --test-run-memory %s: must be at least %s", &o.TestRunMemory.Quantity, &leastTestRunMemory)
	}
	return nil
}

// wayOut is added to errors that prevent the test run of a RegoPolicy, so that they cannot lock administrators out.
const wayOut = `to write the policy without a test run, first set policies-self to mode Audit (needs the verb override on policies-self): ` +
	`kubectl patch regopolicy policies-self --type=merge -p '{"spec":{"mode":"Audit"}}'`

// newTestRunner returns the runner of the tests of RegoPolicies. It reads the stored policies live, so that a policy that another
// replica has just admitted counts.
func (o *Options) newTestRunner(mgr ctrl.Manager, store *facts.Store, patchable grants.Patchable) (*testrun.Runner, error) {
	has, err := newResources(mgr)
	if err != nil {
		return nil, err
	}
	return testrun.New(testrun.Options{
		World: func(ctx context.Context) ([]v1alpha1.RegoPolicy, error) {
			var list v1alpha1.RegoPolicyList
			err := mgr.GetAPIReader().List(ctx, &list)
			return list.Items, err
		},
		Patchable: patchable,
		Ungranted: func(ctx context.Context, policy string, reads []engine.Read) (lacking []catalog.Grant) {
			for _, l := range store.Ungranted(ctx, policy, reads) {
				lacking = append(lacking, catalog.Grant{APIGroup: l.Group, Resource: l.Resource, Verbs: l.Verbs})
			}
			return lacking
		},
		Process: testrun.Process{Memory: o.TestRunMemory.Value()}, Within: o.TestRunTimeout,
		Hint: wayOut, Registry: ctrlmetrics.Registry,
		Match: func(_ context.Context, object *v1alpha1.RegoPolicy) (refused, unserved []string) {
			return bundled.Check(object), append(has.lacking(object), bundled.Remarks(object)...)
		},
	}), nil
}

// checker compiles policies in the same way as the catalog.
type checker struct{ runner *testrun.Runner }

func (checker) Check(ctx context.Context, world []v1alpha1.RegoPolicy) map[string]error {
	_, found := new(catalog.Catalog).Build(ctx, world, nil)
	wrong := map[string]error{}
	for _, s := range found {
		if s.Err != nil {
			wrong[s.Name] = s.Err
		}
	}
	for i := range world {
		if lines := bundled.Check(&world[i]); len(lines) > 0 && wrong[world[i].Name] == nil {
			wrong[world[i].Name] = errors.New(strings.Join(lines, "\n"))
		}
	}
	return wrong
}

// RunTests runs the tests of a policy among others, unless they passed when this release was built.
func (c checker) RunTests(ctx context.Context, world []v1alpha1.RegoPolicy, name string) (refused, err error) {
	if source, err := asReleased(world, name); source != nil || err != nil {
		return nil, err
	}
	finding, err := c.runner.Run(ctx, runOf(world, name))
	if err != nil {
		return nil, err
	}
	return finding.Refused(), nil
}

// asReleased returns a policy if it, its tests and its libraries are identical to those that this program was built with, because
// these tests have passed on the same engine. Otherwise it returns nil.
func asReleased(world []v1alpha1.RegoPolicy, name string) (*catalog.Source, error) {
	released, err := releasedSources()
	if err != nil {
		return nil, err
	}
	is := composer.Compose(world)[name]
	was, known := released[name]
	same := known && is.Package == was.Package && is.Library == was.Library && slices.Equal(is.Modules, was.Modules) &&
		slices.Equal(is.Tests, was.Tests) && slices.Equal(is.Libraries, was.Libraries)
	if !same {
		return nil, nil
	}
	return &is, nil
}

// composer is shared, because a new leader asks asReleased about all policies, one after the other.
var composer catalog.Composer

// releasedSources returns the composed policies of the release, by name.
var releasedSources = sync.OnceValues(func() (map[string]catalog.Source, error) {
	all, err := bundled.Shipped()
	return catalog.Compose(all), err
})

// runOf returns the test run of one policy of a world, without its effects on others.
func runOf(world []v1alpha1.RegoPolicy, name string) *testrun.Run {
	r := &testrun.Run{World: world, Alone: true}
	for i := range world {
		if world[i].Name == name {
			r.Candidate = &world[i]
		}
	}
	return r
}

// tester runs the tests of stored policies.
type tester struct{ runner *testrun.Runner }

// Test returns the content of condition TestsPassed. Tests that passed when this release was built do not run again, because they
// would take every new leader seconds.
func (t tester) Test(ctx context.Context, object *v1alpha1.RegoPolicy) (policy.Tested, error) {
	world, err := t.runner.World(ctx)
	if err != nil {
		return policy.Tested{}, err
	}
	world = slices.DeleteFunc(world, func(o v1alpha1.RegoPolicy) bool { return o.Name == object.Name || !o.Spec.Library })
	world = append(world, *object)
	released, err := asReleased(world, object.Name)
	if err != nil {
		return policy.Tested{}, err
	}
	if released != nil {
		return testedBefore(released)
	}
	finding, err := t.runner.Run(ctx, runOf(world, object.Name))
	if err != nil {
		return policy.Tested{}, err
	}
	return tested(finding), nil
}

func testedBefore(source *catalog.Source) (policy.Tested, error) {
	n, err := engine.CountTests(source.Tests)
	if err != nil {
		return policy.Tested{}, fmt.Errorf("counting the tests: %w", err)
	}
	return policy.Tested{Passed: int32(n), Finding: policy.Finding{
		Reason:  v1alpha1.ReasonTestsPassed,
		Message: plural(n, "test", "tests") + " passed when this release was built, with the same policy and libraries.",
	}}, nil
}

func tested(f *testrun.Finding) policy.Tested {
	result := policy.Tested{Passed: int32(f.Tests.Passed), Failed: int32(f.Tests.Failures)}
	wrong := f.Refused()
	switch {
	case len(f.Missing) > 0:
		result.Finding = policy.Finding{Reason: v1alpha1.ReasonTestsNotRun, Message: "Unresolved library references: " + strings.Join(f.Missing, ", ")}
	case wrong == nil:
		result.Finding = policy.Finding{Reason: v1alpha1.ReasonTestsPassed, Message: plural(f.Tests.Passed, "test passed.", "tests passed.")}
	case f.Has(v1alpha1.ReasonTestsMissing):
		result.Finding = policy.Finding{Reason: v1alpha1.ReasonTestsMissing, Message: "The policy has no tests. Add tests to be able to edit it."}
	default:
		result.Finding = policy.Finding{Reason: v1alpha1.ReasonTestsFailed, Message: wrong.Error()}
	}
	return result
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
