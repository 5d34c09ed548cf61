package operate

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// creation is how a command creates objects and prints them, as kubectl create does.
type creation struct {
	dryRun  string
	print   *genericclioptions.PrintFlags
	printer printers.ResourcePrinter
}

func (o *creation) addFlags(command *cobra.Command) {
	o.print = genericclioptions.NewPrintFlags("created").WithTypeSetter(cli.Scheme)
	if command.Flags().Lookup("template") != nil { // a different flag: use -o go-template=TEMPLATE
		o.print.TemplatePrinterFlags.TemplateArgument = nil
	}
	o.print.AddFlags(command)
	cli.AddDryRun(command, &o.dryRun)
	cli.CompleteValues(command, "output", o.print.AllowedFormats()...)
}

func (o *creation) check() error {
	err := o.print.Complete("%s" + cli.DryRunSuffix[o.dryRun])
	if err == nil {
		o.printer, err = o.print.ToPrinter()
	}
	return err
}

// create creates the object, unless the dry run is client-side.
func (o *creation) create(ctx context.Context, c *cli.Cluster, object client.Object) error {
	if o.dryRun == cli.DryRunClient {
		return nil
	}
	return cli.Writer(c, o.dryRun).Create(ctx, object)
}

// nodeSelector is the flag for labels that a node must have.
type nodeSelector map[string]string

func (s *nodeSelector) addFlag(f *pflag.FlagSet, usage string) {
	f.StringToStringVar((*map[string]string)(s), "node-selector", nil, usage)
	f.Lookup("node-selector").DefValue = "" // hide the default in help
}

// labels returns the selector as in specs; nil if it is empty.
func (s nodeSelector) labels() (labels map[string]v1alpha1.LabelValue) {
	for key, value := range s {
		if labels == nil {
			labels = map[string]v1alpha1.LabelValue{}
		}
		labels[key] = v1alpha1.LabelValue(value)
	}
	return labels
}
