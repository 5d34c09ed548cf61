package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/cmd/internal/format"
	"sallyport.dev/sallyport/cmd/internal/version"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

type versions struct {
	Client version.Info `json:"clientVersion"`
	// Replicas are the versions of running replicas, by namespace and Lease; nil if they were not read.
	Replicas map[string]string `json:"replicaVersions,omitempty"`
}

func versionCommand(p *cli.Plugin) *cobra.Command {
	var client bool
	var output string
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of the plugin and of the running replicas",
		Long: "Prints the version of this plugin, and the version of each running replica of Sallyport from its Lease. With -o, it also\n" +
			"prints the commit that the plugin was built from and the platform it was built for.",
		Example: `  # Compare the versions of the plugin and of the cluster
  kubectl sallyport version

  # Print only the version of the plugin
  kubectl sallyport version --client -o yaml`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return printVersion(command.Context(), p, client, output)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	command.Flags().BoolVar(&client, "client", false, "print only the version of the plugin, without connecting to a cluster")
	format.AddFlag(command, &output)
	return command
}

// printVersion prints the plugin's version even if the replicas' are unknown, as kubectl does.
func printVersion(ctx context.Context, p *cli.Plugin, only bool, output string) error {
	known := versions{Client: version.Get()}
	var failed error
	if !only {
		known.Replicas, failed = replicaVersions(ctx, p)
	}
	if output != "" {
		if err := format.Print(p.Out, output, known); err != nil {
			return err
		}
		return failed
	}
	fmt.Fprintf(p.Out, "Client Version: %s\n", known.Client.GitVersion)
	for _, name := range slices.Sorted(maps.Keys(known.Replicas)) {
		fmt.Fprintf(p.Out, "Replica Version: %s (%s)\n", known.Replicas[name], name)
	}
	return failed
}

// replicaVersions returns the versions that running replicas report in their Leases.
func replicaVersions(ctx context.Context, p *cli.Plugin) (map[string]string, error) {
	c, err := p.Connect()
	if err != nil {
		return nil, err
	}
	s := c.Service(ctx, p)
	if s.Err != nil {
		return nil, fmt.Errorf("reading the Leases of the replicas: %w", s.Err)
	}
	if len(s.Versions) == 0 {
		fmt.Fprintln(p.ErrOut, "Warning: no replica of Sallyport is running")
	}
	return s.Versions, nil
}
