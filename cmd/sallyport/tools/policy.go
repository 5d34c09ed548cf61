package tools

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/cmd/internal/terminal"
	"sallyport.dev/sallyport/cmd/internal/verdict"
	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/webhooks/grants"
	"sallyport.dev/sallyport/webhooks/offline"
	"sallyport.dev/sallyport/webhooks/policyfiles"
)

func newPolicyCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "policy",
		Short: "Create, format, test, check, document and package policies without a cluster",
		Long: "Creates, formats, tests, checks, documents and packages policies without a cluster.\n\n" + pathsHelp + "\n\n" +
			"Without a PATH, test, check and docs use the shipped policies, which are built into this program.",
	}
	command.AddCommand(newPolicyNewCommand(), newPolicyTestCommand(), newPolicyCheckCommand(), newPolicyDocsCommand(), newPolicyManifestCommand())
	return command
}

// pathsHelp describes the paths that commands read policies from, and policiesUsage is the help of a flag with such paths.
const (
	pathsHelp = "PATH is one of the following:\n" +
		"  - a folder of policy sources: each policy is a policy.yaml with its Rego files beside it\n" +
		"  - a file or folder of RegoPolicies, as printed by kubectl get regopolicies -o yaml\n" +
		"  - \"-\" for standard input\n\n" +
		"Shipped libraries that the policies import do not have to be in the path."
	policiesUsage = "`paths` of the policies to use instead of the shipped ones: folders of policy sources, or files and folders of RegoPolicies; " +
		"- means standard input; can be repeated"
)

func policiesOf(command *cobra.Command, paths []string) (*policyfiles.Collection, error) {
	return bundled.Release.Read(&offline.Files{Stdin: command.InOrStdin(), Recursive: true}, paths...)
}

func newPolicyCheckCommand() *cobra.Command {
	var patchable grants.Kinds
	command := &cobra.Command{
		Use:   "check [PATH...]",
		Short: "Compile policies and check that they follow the policy contract",
		Long: "Compiles policies in strict mode and checks them without a request: the policy contract, parameters and patches, whether\n" +
			"an API server would accept each RegoPolicy, and whether it would send the requests that spec.match selects. A warning\n" +
			"reports a resource that does not exist in any cluster.\n\n" +
			"Each problem is printed on one line with file, line and column. For a file of RegoPolicies, the first line number is\n" +
			"that of the RegoPolicy and the second one is the line in its Rego.\n\n" +
			"A note is not a problem. It reports code that prevents Sallyport from passing the policy only the fields of a request\n" +
			"that it reads, such as a builtin that is called with all of input. Such policies are slower. It also reports a policy\n" +
			"on pods that is not evaluated for debug containers.\n\n" +
			"Exit codes: 0 if all policies are valid, 1 if a policy has problems, 2 if policies cannot be read.",
		Example: `  # Check the policies in a folder
  sallyport policy check policies

  # Check the policies of a cluster
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
			fmt.Fprintf(out, "%s %s valid\n", plural(count, "policy", "policies"), verb(count, "is", "are"))
			return nil
		},
	}
	command.Flags().Var(&patchable, "patchable", grants.Usage())
	return command
}

// inOrder prints the problems of policies, one on each line, and returns an error if there are any.
func inOrder(command *cobra.Command, collection *policyfiles.Collection, out io.Writer) error {
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
	return verdict.Bad(fmt.Sprintf("%d of %s %s not valid", n, all, verb(n, "is", "are")))
}

// plural returns a count with its noun.
func plural(n int, one, many string) string { return fmt.Sprintf("%d %s", n, verb(n, one, many)) }

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func indented(text string) string {
	return "      " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n      ")
}
