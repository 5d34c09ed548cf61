package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// wideOutput is the format that adds columns to the table.
const wideOutput = "wide"

func (p *plugin) policiesCommand() *cobra.Command {
	printing := genericclioptions.NewPrintFlags("").WithTypeSetter(scheme)
	command := &cobra.Command{
		Use:   "policies [NAME]",
		Short: "Show which policies decide, which were edited, and what is wrong with them",
		Long: "Lists the RegoPolicies: what a denial of theirs does, whether they decide in their current or in their last good\n" +
			"revision, and which fields differ from what is shipped. What is wrong is told below the table. With a NAME it tells\n" +
			"everything about that one.\n\n" +
			"If no replica of Sallyport is serving, nothing decides, whatever the policies' status says: a warning tells.",
		Example: `  # All of them
  kubectl sallyport policies

  # Why does my edit not count?
  kubectl sallyport policies operations-supersede

  # Have the edited fields as shipped again
  kubectl sallyport policies reset operations-supersede`,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usage(command, fmt.Errorf("one NAME at a time, not %s", strings.Join(args, " ")))
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			return p.policies(command, args, printing)
		},
		ValidArgsFunction: func(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return p.names(command.Context(), policyKind), cobra.ShellCompDirectiveNoFileComp
		},
	}
	printing.AddFlags(command)
	formats := append([]string{wideOutput}, printing.AllowedFormats()...)
	command.Flags().Lookup("output").Usage = fmt.Sprintf("Output format. One of: (%s).", strings.Join(formats, ", "))
	complete(command, "output", formats...)
	command.AddCommand(p.resetCommand())
	return command
}

func (p *plugin) policies(command *cobra.Command, args []string, printing *genericclioptions.PrintFlags) error {
	name := ""
	if len(args) == 1 {
		var err error
		if name, err = policyName(args[0]); err != nil {
			return usage(command, err)
		}
	}
	table := *printing.OutputFormat == "" || *printing.OutputFormat == wideOutput
	if !table {
		if _, err := printing.ToPrinter(); err != nil {
			return usage(command, err)
		}
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	list, err := c.policies(command.Context(), name)
	switch {
	case err != nil:
		return err
	case !table:
		return printPolicies(p, printing, list, name)
	case len(list.Items) == 0:
		fmt.Fprintln(p.ErrOut, "No RegoPolicies found")
		return nil
	}
	service := c.service(command.Context(), p)
	trouble := service.trouble(list.Items, p.now())
	switch {
	case trouble != "":
		fmt.Fprintln(p.ErrOut, "Warning:", trouble)
	case service.err != nil:
		fmt.Fprintln(p.ErrOut, "Note: whether a replica of Sallyport is serving is not known:", service.err)
	}
	if name != "" && *printing.OutputFormat == "" {
		return render(p.Out, &policyReport{policy: &list.Items[0], unserved: trouble}, p.now())
	}
	r := &policiesReport{policies: list.Items, wide: *printing.OutputFormat == wideOutput, unserved: trouble != ""}
	if name == "" {
		r.serving = service.policies
	}
	return render(p.Out, r, p.now())
}

// policies reads one, or all in the order of their names.
func (c *cluster) policies(ctx context.Context, name string) (*v1alpha1.RegoPolicyList, error) {
	list := &v1alpha1.RegoPolicyList{}
	if name == "" {
		if err := c.List(ctx, list); err != nil {
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

// printPolicies is for programs: the object that was named, else a list, of which there are only names one by one.
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

// policyWords are the names under which kubectl knows the kind.
var policyWords = []string{"rego", "regopolicy", "regopolicies"}

// policyName reads an argument that is to name a RegoPolicy: defaults, rego/defaults.
func policyName(argument string) (string, error) {
	word, name, found := strings.Cut(argument, "/")
	if !found {
		return argument, nil
	}
	if !slices.Contains(policyWords, bareKind(word)) || name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%s is not a RegoPolicy: name it as NAME or rego/NAME", argument)
	}
	return name, nil
}

// conditionOf finds a condition of a policy.
func conditionOf(policy *v1alpha1.RegoPolicy, t v1alpha1.ConditionType) *metav1.Condition {
	for i := range policy.Status.Conditions {
		if c := &policy.Status.Conditions[i]; c.Type == string(t) {
			return c
		}
	}
	return nil
}
