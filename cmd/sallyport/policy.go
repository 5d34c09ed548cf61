package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/cmd/internal/terminal"
	builtin "sallyport.dev/sallyport/cmd/sallyport/asked"
	"sallyport.dev/sallyport/webhooks/grants"
	"sallyport.dev/sallyport/webhooks/load"
	"sallyport.dev/sallyport/webhooks/offline"
)

func newPolicyCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "policy",
		Short: "Begin, format, test, check, describe and pack policies, without a cluster",
		Long: "Begins, formats, tests, checks, describes and packs policies, without a cluster. " + pathsHelp + "\n" +
			"Without a path, test, check and docs are about the shipped policies, which are built into this program.",
	}
	command.AddCommand(newPolicyNewCommand(), newPolicyFmtCommand(), newPolicyTestCommand(), newPolicyCheckCommand(), newPolicyDocsCommand(), newPolicyManifestCommand())
	return command
}

// pathsHelp says what a path to policies is, policiesUsage the same of a flag.
const (
	pathsHelp = "A path is a folder that policies are\n" +
		"written in, each a policy.yaml with its Rego beside it; or a file or folder of RegoPolicies as kubectl get -o yaml\n" +
		"shows them; or - for standard input. What policies import from the shipped libraries need not be there."
	policiesUsage = "`paths` of policies, in place of the shipped ones: folders in which they are written, or files and folders of RegoPolicies; " +
		"- is standard input; may be repeated"
)

// policiesOf reads the policies of a command's arguments.
func policiesOf(command *cobra.Command, paths []string) (*load.Collection, error) {
	return builtin.Release.Read(&offline.Files{Stdin: command.InOrStdin(), Recursive: true}, paths...)
}

func newPolicyCheckCommand() *cobra.Command {
	var patchable grants.Kinds
	command := &cobra.Command{
		Use:   "check [PATH...]",
		Short: "Compile policies strictly and check that they keep to the contract",
		Long: "Compiles the policies of the paths, or the shipped ones, and checks what can be said of them before any request:\n" +
			"the contract, the parameters, what they patch, whether an API server would take the RegoPolicy, and whether it would ask\n" +
			"the policy about what spec.match names. A warning names a resource that no cluster has.\n\n" +
			"Problems are told a line each, with file, line and column. In a file of RegoPolicies, the line of the RegoPolicy\n" +
			"comes first and the line in its Rego after it.\n\n" +
			"A note is no problem. It names what keeps a policy from being given no more of each request than it reads, as a builtin\n" +
			"that gets all of input: that costs time.\n\n" +
			"Exit code 0 if all policies are in order, 1 if one is not, 2 if they cannot be read.",
		Example: `  # The policies of a folder, and those of a cluster
  sallyport policy check policies
  kubectl get regopolicies -o yaml | sallyport policy check -`,
		RunE: func(command *cobra.Command, args []string) error {
			collection, err := policiesOf(command, args)
			if err != nil {
				return err
			}
			collection.Patchable = patchable
			out := terminal.Safe(command.OutOrStdout())
			if err := inOrder(command, collection, out); err != nil {
				return err
			}
			for _, line := range collection.Remarks() {
				fmt.Fprintln(out, line)
			}
			count := len(collection.Objects)
			fmt.Fprintf(out, "%s %s in order\n", plural(count, "policy", "policies"), verb(count, "is", "are"))
			return nil
		},
	}
	command.Flags().Var(&patchable, "patchable", grants.Usage())
	return command
}

// inOrder tells what is wrong with policies, a line each, and fails if anything is.
func inOrder(command *cobra.Command, collection *load.Collection, out io.Writer) error {
	problems, err := collection.Check(command.Context())
	if err != nil {
		return err
	}
	for _, p := range problems {
		fmt.Fprintln(out, strings.Join(p.Lines, "\n"))
	}
	n := len(problems)
	if n == 0 {
		return nil
	}
	all := plural(len(collection.Objects), "policy", "policies")
	return &verdictError{fmt.Sprintf("%d of %s %s not in order", n, all, verb(n, "is", "are"))}
}

// plural counts something.
func plural(n int, one, many string) string { return fmt.Sprintf("%d %s", n, verb(n, one, many)) }

// verb is the form of a word that goes with a number.
func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func indented(text string) string {
	return "      " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      ")
}
