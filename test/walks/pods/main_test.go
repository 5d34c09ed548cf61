//go:build !race

package pods

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"sallyport.dev/sallyport/test/support/nodeagent"
	testsite "sallyport.dev/sallyport/test/support/site"
	"sallyport.dev/sallyport/test/support/step"
)

// stack is the release that the tests share.
var stack testsite.Site

// registry has the snapshots of machines that are moved.
var registry = nodeagent.StartRegistry()

func TestMain(m *testing.M) {
	step.Parallel(8)
	os.Exit(stack.Main(m, testsite.Options{
		Values: []string{"runtimes.pod.enabled=true", "runtimes.pod.snapshots.repository=" + registry.Repository()},
		Flags:  []string{"--poll-interval", "200ms", "--decision-records", "off"},
		Prepare: func(_ context.Context, s *testsite.Site) error {
			s.Defer(func() error { registry.Close(); return nil })
			authority := filepath.Join(s.Dir, "registry.pem")
			s.Options.Flags = append(s.Options.Flags, "--pod-snapshot-ca-file", authority)
			return registry.WriteAuthority(authority)
		},
	}))
}
