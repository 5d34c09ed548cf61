package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/policies/describe"
	"sallyport.dev/sallyport/webhooks/load"
)

// docsPreface is what a page of policy docs begins with.
const docsPreface = `<!-- Written by sallyport policy docs, from the policies and the METADATA of their Rego: edit these. -->

# Policies

What a policy refuses, the message of the API server says with ` + "`[POLICY/Reason]`" + `. Here is what that means, and what to do. The
HTTP code is that of a creation; everything else is refused with 403.

`

func newPolicyDocsCommand() *cobra.Command {
	to := outputFile("")
	command := &cobra.Command{
		Use:   "docs [PATH...]",
		Short: "Write what policies are about, and what to do about each denial",
		Long: "Writes a page in Markdown about the policies of the paths, or the shipped ones, for those who meet them: what each is\n" +
			"asked about, each reason to refuse something with its remedy, what it changes, reads and takes as parameters. All of it\n" +
			"comes from the RegoPolicies and from the METADATA of their Rego. A denial is found by the [policy/Reason] that it begins\n" +
			"with: each has a heading of that name. The Rego is linked if it is in files of its own, seen from the page.\n\n" +
			"Exit code 0 if it was written, 1 if a policy is not in order, as policy check tells, 2 if the policies cannot be read or\n" +
			"the file cannot be written.",
		Example: `  sallyport policy docs policies -o policies/README.md

  # What is in force in a cluster
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

// describePolicies gives the page, with links as they are seen from a folder.
func describePolicies(collection *load.Collection, folder string) (string, error) {
	page := describe.Page{Preface: docsPreface, Modules: func(policy *v1alpha1.RegoPolicy, module string) string {
		path := collection.Module(policy.Name, module)
		if path == "" {
			return ""
		}
		return seenFrom(folder, path)
	}}
	return page.Write(collection.Objects)
}

// seenFrom gives a path as a page in a folder links to it.
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
