package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// listing are the flags of policies, the same as of kubectl get.
type listing struct {
	*plugin
	printing *genericclioptions.PrintFlags
	selector string
}

func (p *plugin) policiesCommand() *cobra.Command {
	printing := genericclioptions.NewPrintFlags("").WithTypeSetter(scheme)
	l := &listing{plugin: p, printing: printing}
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
				return usage(command, fmt.Errorf("specify at most one NAME, got %s", strings.Join(args, " ")))
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			return l.run(command, args)
		},
		ValidArgsFunction: p.completePolicy,
	}
	printing.AddFlags(command)
	command.Flags().StringVarP(&l.selector, "selector", "l", "", policySelectorUsage)
	complete(command, "output", printing.AllowedFormats()...)
	command.AddCommand(p.resetCommand())
	return command
}

func (l *listing) run(command *cobra.Command, args []string) error {
	name, only, err := whichPolicies(args, l.selector)
	table := *l.printing.OutputFormat == ""
	if err == nil && !table {
		_, err = l.printing.ToPrinter()
	}
	if err != nil {
		return usage(command, err)
	}
	c, err := l.connect()
	if err != nil {
		return err
	}
	list, err := c.policies(command.Context(), name, only...)
	switch {
	case err != nil:
		return err
	case !table:
		return printPolicies(l.plugin, l.printing, list, name)
	case len(list.Items) == 0:
		fmt.Fprintln(l.ErrOut, "No resources found")
		return nil
	}
	service := c.service(command.Context(), l.plugin)
	trouble := service.trouble(list.Items, l.now())
	switch {
	case trouble != "":
		fmt.Fprintln(l.ErrOut, "Warning:", trouble)
	case service.err != nil:
		fmt.Fprintln(l.ErrOut, "Note: cannot tell whether a replica of Sallyport is serving:", service.err)
	}
	if name != "" {
		return render(l.Out, &policyReport{policy: &list.Items[0], unserved: trouble}, l.now())
	}
	return render(l.Out, &policiesReport{policies: list.Items, serving: service.policies, unserved: trouble != ""}, l.now())
}

// policySelectorUsage is the help of a flag that selects policies.
const policySelectorUsage = "label selector for the policies, as in kubectl get"

// whichPolicies returns the name of the requested policy, or list options for the selector.
func whichPolicies(args []string, selector string) (name string, only []client.ListOption, err error) {
	if err := (&selection{labels: selector}).check(len(args)); err != nil {
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

// policies reads one policy, or all by name.
func (c *cluster) policies(ctx context.Context, name string, only ...client.ListOption) (*v1alpha1.RegoPolicyList, error) {
	list := &v1alpha1.RegoPolicyList{}
	if name == "" {
		if err := c.List(ctx, list, only...); err != nil {
			return nil, err
		}
	} else {
		list.Items = make([]v1alpha1.RegoPolicy, 1)
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &list.Items[0]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(list.Items, func(a, b v1alpha1.RegoPolicy) int { return strings.Compare(a.Name, b.Name) })
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(policyKind))
	}
	return list, nil
}

// printPolicies prints the named object or the list in the format of --output.
func printPolicies(p *plugin, printing *genericclioptions.PrintFlags, list *v1alpha1.RegoPolicyList, name string) error {
	printer, err := printing.ToPrinter()
	if err != nil {
		return err
	}
	if name == "" && *printing.OutputFormat != "name" {
		return printer.PrintObj(list, p.raw)
	}
	for i := range list.Items {
		if err := printer.PrintObj(&list.Items[i], p.raw); err != nil {
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
	if kindOf(word) != policyKind || name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%s is not a RegoPolicy: use NAME or rego/NAME", argument)
	}
	return name, nil
}
