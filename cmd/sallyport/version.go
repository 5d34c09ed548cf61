package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/cmd/internal/format"
	"sallyport.dev/sallyport/cmd/internal/version"
)

func newVersionCommand() *cobra.Command {
	var output string
	command := &cobra.Command{
		Use:   "version",
		Short: "Show which build this is",
		Long: "Shows the version of this program, and with -o the commit and the platform that it was built from and for.\n\n" +
			"Exit code 0, or 2 if the command line is not in order.",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			info := version.Get()
			if output == "" {
				fmt.Fprintf(command.OutOrStdout(), "Client Version: %s\n", info.GitVersion)
				return nil
			}
			return format.Print(command.OutOrStdout(), output, struct {
				Client version.Info `json:"clientVersion"`
			}{info})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	format.AddFlag(command, &output)
	return command
}
