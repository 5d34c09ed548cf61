package cli

import (
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/cmd/internal/choice"
)

// The values of --dry-run.
const (
	DryRunNone   = "none"
	DryRunServer = "server"
	DryRunClient = "client"
)

// DryRunSuffix is the suffix of a result, by the value of --dry-run.
var DryRunSuffix = map[string]string{DryRunNone: "", DryRunServer: " (server dry run)", DryRunClient: " (dry run)"}

// AddDryRun adds the flag --dry-run.
func AddDryRun(command *cobra.Command, value *string) {
	*value = DryRunNone
	choice.Flag(command, value, "dry-run", "", "none, server (evaluate the request without saving changes) or client (only print the request)", DryRunNone, DryRunServer, DryRunClient)
}

// Writer returns a client for changes, which does not persist them if dryRun is server.
func Writer(c client.Client, dryRun string) client.Client {
	if dryRun == DryRunServer {
		return client.NewDryRunClient(c)
	}
	return c
}
