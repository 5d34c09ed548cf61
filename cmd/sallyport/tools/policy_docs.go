package tools

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies/describe"
	"sallyport.dev/sallyport/webhooks/policyfiles"
)

// docsPreface is the beginning of the generated page.
const docsPreface = `<!-- Written by sallyport policy docs, from the policies and the METADATA of their Rego: edit these. -->

# Policies

What a policy refuses, the message of the API server says with ` + "`[POLICY/Reason]`" + `. Here is what that means, and what to do. The
HTTP code is that of a creation; everything else is refused with 403.

`

func newPolicyDocsCommand() *cobra.Command {
	to := outputFile("")
	command := &cobra.Command{
		Use:   "docs [PATH...]",
		Short: "Generate documentation of policies and their denials",
		Long: "Generates a Markdown page for users of policies. For each policy, the page describes the requests that it evaluates, each\n" +
			"reason for a denial with its remedy, and what the policy changes, reads and accepts as parameters. The content comes from\n" +
			"the RegoPolicies and the METADATA of their Rego.\n\n" +
			"Each reason has a heading POLICY/Reason, the same as in the denial message [POLICY/Reason]. If the Rego is in separate\n" +
			"files, the page links to them relative to its own location.\n\n" +
			"Exit codes: 0 on success, 1 if policy check would report problems, 2 if policies cannot be read or the file cannot be\n" +
			"written.",
		Example: `  # Document the policies in a folder
  sallyport policy docs policies -o policies/README.md

  # Document the policies of a cluster
  kubectl get regopolicies -o yaml | sallyport policy docs -`,
		RunE: func(command *cobra.Command, args []string) error {
			collection, err := policiesOf(command, args)
			if err != nil {
				return err
			}
			if err := inOrder(command, collection, command.ErrOrStderr()); err != nil {
				return err
			}
			text, err := describePolicies(collection, filepath.Dir(string(to)))
			if err != nil {
				return err
			}
			return to.write(command, []byte(text))
		},
	}
	to.addFlag(command)
	return command
}

// describePolicies returns the page, with links relative to a folder.
func describePolicies(collection *policyfiles.Collection, folder string) (string, error) {
	page := describe.Page{Preface: docsPreface, Modules: func(policy *v1alpha1.RegoPolicy, module string) string {
		path := collection.Module(policy.Name, module)
		if path == "" {
			return ""
		}
		return seenFrom(folder, path)
	}}
	return page.Write(collection.Objects)
}

// seenFrom returns a path as a link from a page in a folder.
func seenFrom(folder, path string) string {
	from, errFrom := filepath.Abs(folder)
	to, errTo := filepath.Abs(path)
	if errFrom == nil && errTo == nil {
		if relative, err := filepath.Rel(from, to); err == nil {
			path = relative
		}
	}
	return filepath.ToSlash(path)
}
