package tools

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
		Short: "Print the version",
		Long: "Prints the version of this program. With -o, it also prints the commit that the program was built from and the platform it was\n" +
			"built for.\n\n" +
			"Exit codes: 0 on success, 2 if the command line is invalid.",
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
