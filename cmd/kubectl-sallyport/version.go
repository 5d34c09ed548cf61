package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func (p *plugin) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of this plugin",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				return fmt.Errorf("this binary was built without information about its version")
			}
			fmt.Fprintf(p.Out, "kubectl-sallyport %s (%s), for %s\n", info.Main.Version, info.GoVersion, "sallyport.dev/v1alpha1")
			return nil
		},
	}
}
