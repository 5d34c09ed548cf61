package plugin

import (
	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/cmd/internal/choice"
)

// The values of --dry-run.
const dryRunNone, dryRunServer, dryRunClient = "none", "server", "client"

// dryRuns is the suffix of a result, by the value of --dry-run.
var dryRuns = map[string]string{dryRunNone: "", dryRunServer: " (server dry run)", dryRunClient: " (dry run)"}

// addDryRun adds the flag --dry-run.
func addDryRun(command *cobra.Command, value *string) {
	*value = dryRunNone
	choice.Flag(command, value, "dry-run", "", "none, server (evaluate the request without saving changes) or client (only print the request)", dryRunNone, dryRunServer, dryRunClient)
}

// writer returns a client for changes, which does not persist them if dryRun is server.
func writer(c client.Client, dryRun string) client.Client {
	if dryRun == dryRunServer {
		return client.NewDryRunClient(c)
	}
	return c
}
