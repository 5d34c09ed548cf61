package plugin

import (
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/test/support/pages"
)

// What somebody copies out of the docs is understood.
func TestDocsShowCommandsThatThereAre(t *testing.T) {
	plugin := func() *cobra.Command { return rootCommand(cli.New(genericiooptions.NewTestIOStreamsDiscard())) }
	all := pages.All(t, "../../..")
	pages.Understood(t, all, plugin, []string{"kubectl", "sallyport"}, []string{"kubectl-sallyport"})
	pages.HasFlags(t, all, plugin(), []string{"docs/kubectl.md"})
}
