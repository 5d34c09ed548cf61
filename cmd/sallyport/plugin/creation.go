package plugin

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// creation is how a command creates objects and prints them, as kubectl create does.
type creation struct {
	dryRun  string
	print   *genericclioptions.PrintFlags
	printer printers.ResourcePrinter
}

func (o *creation) addFlags(command *cobra.Command) {
	o.print = genericclioptions.NewPrintFlags("created").WithTypeSetter(scheme)
	if command.Flags().Lookup("template") != nil { // a different flag: use -o go-template=TEMPLATE
		o.print.TemplatePrinterFlags.TemplateArgument = nil
	}
	o.print.AddFlags(command)
	addDryRun(command, &o.dryRun)
	complete(command, "output", o.print.AllowedFormats()...)
}

// check reads the flags.
func (o *creation) check() error {
	err := o.print.Complete("%s" + dryRuns[o.dryRun])
	if err == nil {
		o.printer, err = o.print.ToPrinter()
	}
	return err
}

// create creates the object, unless the dry run is client-side.
func (o *creation) create(ctx context.Context, c *cluster, object client.Object) error {
	if o.dryRun == dryRunClient {
		return nil
	}
	return writer(c, o.dryRun).Create(ctx, object)
}
