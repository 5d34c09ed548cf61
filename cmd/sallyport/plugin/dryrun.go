package plugin

import (
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/cmd/internal/choice"
)

// The values of --dry-run.
const dryRunNone, dryRunServer, dryRunClient = "none", "server", "client"

// dryRuns are what is added to what was not done.
var dryRuns = map[string]string{dryRunNone: "", dryRunServer: " (server dry run)", dryRunClient: " (dry run)"}

// addDryRun adds the flag --dry-run, where judged is what the API server is asked to judge.
func addDryRun(command *cobra.Command, value *string, judged string) {
	*value = dryRunNone
	choice.Flag(command, value, "dry-run", "", fmt.Sprintf("none, server (%s, but not done) or client (only shown)", judged), dryRunNone, dryRunServer, dryRunClient)
}

// writer is for changes, which it has judged and not done if --dry-run says so.
func writer(c client.Client, dryRun string) client.Client {
	if dryRun == dryRunServer {
		return client.NewDryRunClient(c)
	}
	return c
}
