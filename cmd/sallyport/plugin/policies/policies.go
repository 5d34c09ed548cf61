// Package policies has the commands about policies: their state, audits, overrides, and the gate.
package policies

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// listing are the flags of policies, the same as of kubectl get.
type listing struct {
	*cli.Plugin
	printing *genericclioptions.PrintFlags
	selector string
}

// Commands returns the commands about policies.
func Commands(p *cli.Plugin) []*cobra.Command {
	return []*cobra.Command{policiesCommand(p), auditCommand(p), overrideCommand(p), gateCommand(p)}
}

func policiesCommand(p *cli.Plugin) *cobra.Command {
	l := newListing(p)
	command := &cobra.Command{
		Use:   "policies [NAME | -l SELECTOR]",
		Short: "List policies with their mode, state and problems",
		Long: "Lists RegoPolicies: the mode, whether the current or the last good revision is active, violations, and fields that differ\n" +
			"from the shipped policy. Problems are listed below the table. With NAME, shows the details of one policy.\n" +
			"To watch policies, run: kubectl get rego --watch\n\n" +
			"If no replica of Sallyport is serving, no policy is evaluated, and the command prints a warning.",
		Example: `  # List all policies
  kubectl sallyport policies

  # Show why an edited policy is not active
  kubectl sallyport policies operations-supersede

  # Reset the edited fields of a shipped policy
  kubectl sallyport policies reset operations-supersede`,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.UsageError(command, fmt.Errorf("specify at most one NAME, got %s", strings.Join(args, " ")))
			}
			return nil
		},
		RunE:              func(command *cobra.Command, args []string) error { return l.run(command, args) },
		ValidArgsFunction: p.CompleteOne(cli.PolicyKind),
	}
	l.addFlags(command)
	command.AddCommand(resetCommand(p))
	return command
}

func newListing(p *cli.Plugin) *listing {
	return &listing{Plugin: p, printing: genericclioptions.NewPrintFlags("").WithTypeSetter(cli.Scheme)}
}

func (l *listing) addFlags(command *cobra.Command) {
	l.printing.AddFlags(command)
	command.Flags().StringVarP(&l.selector, "selector", "l", "", "label selector for the policies, as in kubectl get")
	cli.CompleteValues(command, "output", l.printing.AllowedFormats()...)
}

// table reports whether to print text instead of objects.
func (l *listing) table() bool { return *l.printing.OutputFormat == "" }

// read reads the policy of that name, or the selected ones if it is "".
func (l *listing) read(command *cobra.Command, args []string) (c *cli.Cluster, list *v1alpha1.RegoPolicyList, name string, err error) {
	name, only, err := whichPolicies(args, l.selector)
	if err == nil && !l.table() {
		_, err = l.printing.ToPrinter()
	}
	if err != nil {
		return nil, nil, "", cli.UsageError(command, err)
	}
	if c, err = l.Connect(); err != nil {
		return nil, nil, "", err
	}
	list, err = c.Policies(command.Context(), name, only...)
	return c, list, name, err
}

func (l *listing) run(command *cobra.Command, args []string) error {
	c, list, name, err := l.read(command, args)
	switch {
	case err != nil:
		return err
	case !l.table():
		return l.print(list, name)
	case len(list.Items) == 0:
		fmt.Fprintln(l.ErrOut, "No resources found")
		return nil
	}
	service := c.Service(command.Context(), l.Plugin)
	trouble := service.Trouble(list.Items, l.Now())
	switch {
	case trouble != "":
		fmt.Fprintln(l.ErrOut, "Warning:", trouble)
	case service.Err != nil:
		fmt.Fprintln(l.ErrOut, "Note: cannot tell whether a replica of Sallyport is serving:", service.Err)
	}
	if name != "" {
		return cli.Render(l.Out, &policyReport{policy: &list.Items[0], denials: service.DenialsOf(name), unserved: trouble}, l.Now())
	}
	return cli.Render(l.Out, &policiesReport{policies: list.Items, serving: service.Policies, denials: service.Denials, unserved: trouble != ""}, l.Now())
}

// whichPolicies returns the name of the requested policy, or list options for the selector.
func whichPolicies(args []string, selector string) (name string, only []client.ListOption, err error) {
	if err := (&cli.Selection{Labels: selector}).Check(len(args)); err != nil {
		return "", nil, err
	}
	if selector != "" {
		chosen, err := labels.Parse(selector)
		if err != nil {
			return "", nil, fmt.Errorf("--selector %q: %w", selector, err)
		}
		only = append(only, client.MatchingLabelsSelector{Selector: chosen})
	}
	if len(args) == 0 {
		return "", only, nil
	}
	name, err = policyName(args[0])
	return name, []client.ListOption{client.MatchingFields{"metadata.name": name}}, err
}

// print prints the named object or the list in the format of --output.
func (l *listing) print(list *v1alpha1.RegoPolicyList, name string) error {
	printer, err := l.printing.ToPrinter()
	if err != nil {
		return err
	}
	if name == "" && *l.printing.OutputFormat != "name" {
		return printer.PrintObj(list, l.Raw)
	}
	for i := range list.Items {
		if err := printer.PrintObj(&list.Items[i], l.Raw); err != nil {
			return err
		}
	}
	return nil
}

// policyName parses an argument that names a RegoPolicy: defaults, rego/defaults.
func policyName(argument string) (string, error) {
	word, name, found := strings.Cut(argument, "/")
	if !found {
		return argument, nil
	}
	if cli.KindOf(word) != cli.PolicyKind || name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%s is not a RegoPolicy: use NAME or rego/NAME", argument)
	}
	return name, nil
}
