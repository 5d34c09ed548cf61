//go:build !race

package vcenter

import (
	"context"
	"os"
	"testing"

	testsite "sallyport.dev/sallyport/test/support/site"
)

// stack is what all tests of this package share.
var stack struct {
	testsite.Site
	witness *witness
}

func TestMain(m *testing.M) {
	os.Exit(stack.Main(m, testsite.Options{
		Values: []string{
			"rbac.cloudInitSecrets[0]=*", "templates.forbiddenRanges={192.0.2.0/24}", // images are on loopback
			"policies.placement-migration.parameters.maxPerHost=0", // many machines are moved from one host at a time
		},
		Flags: []string{"--poll-interval", "200ms"},
		Prepare: func(ctx context.Context, s *testsite.Site) (err error) {
			stack.witness, err = watchAll(ctx, s.Client)
			s.Defer(func() error { stack.witness.end(); return nil })
			return err
		},
		After: func(context.Context) error { return secrets.leaks() },
	}))
}
