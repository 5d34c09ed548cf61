package manager

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/webhooks/testrun"
)

// What has the text of the release, with its tests and libraries, is not tested again. Whatever anybody changes of these is.
func TestWhatIsAsReleasedIsNotTestedAgain(t *testing.T) {
	const name, library = "operations-supersede", "lib-operations"
	const comment = "\n# Somebody was here.\n"
	released, err := bundled.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		edit  func(policy, library *v1alpha1.RegoPolicy)
		again bool
	}{
		"nothing":               {func(_, _ *v1alpha1.RegoPolicy) {}, false},
		"how it is enforced":    {func(p, _ *v1alpha1.RegoPolicy) { p.Spec.Mode, p.Spec.Parameters = v1alpha1.ModeAudit, nil }, false},
		"a module":              {func(p, _ *v1alpha1.RegoPolicy) { p.Spec.Modules[0].Source += comment }, true},
		"a test":                {func(p, _ *v1alpha1.RegoPolicy) { p.Spec.Tests[0].Source += comment }, true},
		"its tests are gone":    {func(p, _ *v1alpha1.RegoPolicy) { p.Spec.Tests = nil }, true},
		"its package":           {func(p, _ *v1alpha1.RegoPolicy) { p.Spec.Package += ".other" }, true},
		"it is a library":       {func(p, _ *v1alpha1.RegoPolicy) { p.Spec.Library = true }, true},
		"its name":              {func(p, _ *v1alpha1.RegoPolicy) { p.Name += "-too" }, true},
		"the text of a library": {func(_, l *v1alpha1.RegoPolicy) { l.Spec.Modules[0].Source += comment }, true},
		"a library is gone":     {func(_, l *v1alpha1.RegoPolicy) { l.Name, l.Spec.Library = "other", false }, true},
	} {
		t.Run(what, func(t *testing.T) {
			world := make([]v1alpha1.RegoPolicy, len(released))
			for i := range released {
				released[i].DeepCopyInto(&world[i])
			}
			at := func(name string) *v1alpha1.RegoPolicy {
				return &world[slices.IndexFunc(world, func(p v1alpha1.RegoPolicy) bool { return p.Name == name })]
			}
			policy := at(name).DeepCopy()
			c.edit(policy, at(library))
			runner := testrun.New(testrun.Options{
				World:    func(context.Context) ([]v1alpha1.RegoPolicy, error) { return world, nil },
				Process:  testrun.Process{Command: []string{filepath.Join(t.TempDir(), "no-child")}},
				Registry: prometheus.NewRegistry(),
			})
			got, err := tester{runner}.Test(t.Context(), policy)
			switch {
			case c.again && !errors.Is(err, fs.ErrNotExist):
				t.Errorf("no child was to be started: %+v, %v", got, err)
			case !c.again && (err != nil || got.Reason != v1alpha1.ReasonTestsPassed || got.Passed == 0 ||
				!strings.HasSuffix(got.Message, "tests passed when this release was built, with the same policy and libraries.")):
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}
