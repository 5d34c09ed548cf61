package plugin

import (
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The values of --dry-run.
const dryRunNone, dryRunServer, dryRunClient = "none", "server", "client"

// dryRuns are what is added to what was not done.
var dryRuns = map[string]string{dryRunNone: "", dryRunServer: " (server dry run)", dryRunClient: " (dry run)"}

// addDryRun adds the flag --dry-run, where judged is what the API server is asked to judge.
func addDryRun(command *cobra.Command, value *string, judged string) {
	command.Flags().StringVar(value, "dry-run", dryRunNone, fmt.Sprintf("none, server (%s, but not done) or client (only shown)", judged))
	complete(command, "dry-run", dryRunNone, dryRunServer, dryRunClient)
}

// checkDryRun refuses a value of --dry-run that is not one.
func checkDryRun(value string) error {
	if _, known := dryRuns[value]; !known {
		return fmt.Errorf("--dry-run=%s is not none, server or client", value)
	}
	return nil
}

// writer is for changes, which it has judged and not done if --dry-run says so.
func writer(c client.Client, dryRun string) client.Client {
	if dryRun == dryRunServer {
		return client.NewDryRunClient(c)
	}
	return c
}
