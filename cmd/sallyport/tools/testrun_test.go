package tools

import (
	"context"
	"os"
	"testing"

	"sallyport.dev/sallyport/webhooks/testrun"
)

// TestMain is the child, too, in which policies are tried.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == testrun.Subcommand {
		os.Exit(Run(context.Background(), newCommand()))
	}
	os.Exit(m.Run())
}
