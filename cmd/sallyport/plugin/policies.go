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

// wideOutput is the format that adds columns to the table.
const wideOutput = "wide"

// listing are the flags of policies, which kubectl get has, too.
type listing struct {
	*plugin
	printing                *genericclioptions.PrintFlags
	selector                string
	noHeaders, watchChanges bool
}

func (l *listing) table() bool { return *l.printing.OutputFormat == "" || l.wide() }

func (l *listing) wide() bool { return *l.printing.OutputFormat == wideOutput }

func (p *plugin) policiesCommand() *cobra.Command {
	printing := genericclioptions.NewPrintFlags("").WithTypeSetter(scheme)
	l := &listing{plugin: p, printing: printing}
	command := &cobra.Command{
		Use:   "policies [NAME | -l SELECTOR]",
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
			return l.run(command, args)
		},
		ValidArgsFunction: p.completePolicy,
	}
	printing.AddFlags(command)
	f := command.Flags()
	f.StringVarP(&l.selector, "selector", "l", "", policySelectorUsage)
	f.BoolVar(&l.noHeaders, "no-headers", false, "leave the header of the table out, and what stands below it")
	f.BoolVarP(&l.watchChanges, "watch", "w", false, "after listing them, show each policy that changes")
	formats := append([]string{wideOutput}, printing.AllowedFormats()...)
	command.Flags().Lookup("output").Usage = fmt.Sprintf("Output format. One of: (%s).", strings.Join(formats, ", "))
	complete(command, "output", formats...)
	command.AddCommand(p.resetCommand())
	return command
}

func (l *listing) run(command *cobra.Command, args []string) error {
	name, only, err := whichPolicies(args, l.selector)
	if err == nil && !l.table() {
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
	case !l.table() && !l.watchChanges:
		return printPolicies(l.plugin, l.printing, list, name)
	case len(list.Items) == 0 && !l.watchChanges:
		fmt.Fprintln(l.ErrOut, "No resources found")
		return nil
	}
	service := c.service(command.Context(), l.plugin)
	trouble := service.trouble(list.Items, l.now())
	switch {
	case trouble != "":
		fmt.Fprintln(l.ErrOut, "Warning:", trouble)
	case service.err != nil:
		fmt.Fprintln(l.ErrOut, "Note: whether a replica of Sallyport is serving is not known:", service.err)
	}
	if l.watchChanges {
		if name != "" {
			list.ResourceVersion = list.Items[0].ResourceVersion
		}
		return l.watch(command.Context(), c, list, only)
	}
	if name != "" && !l.wide() && !l.noHeaders {
		return render(l.Out, &policyReport{policy: &list.Items[0], unserved: trouble}, l.now())
	}
	r := &policiesReport{policies: list.Items, wide: l.wide(), headless: l.noHeaders, unserved: trouble != ""}
	if name == "" {
		r.serving = service.policies
	}
	return render(l.Out, r, l.now())
}

// policySelectorUsage is the help of a flag that chooses policies.
const policySelectorUsage = "labels that the policies must have, as for kubectl get"

// whichPolicies are asked for: the one that is named, or those with the labels.
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

// policies reads one, or all in the order of their names.
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

// policyName reads an argument that is to name a RegoPolicy: defaults, rego/defaults.
func policyName(argument string) (string, error) {
	word, name, found := strings.Cut(argument, "/")
	if !found {
		return argument, nil
	}
	if kindOf(word) != policyKind || name == "" || strings.Contains(name, "/") {
		return "", fmt.Errorf("%s is not a RegoPolicy: name it as NAME or rego/NAME", argument)
	}
	return name, nil
}
