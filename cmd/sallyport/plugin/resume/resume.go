// Package resume has the command that has Sallyport act on machines again after etcd was restored.
package resume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/reconcilers/runtime"
)

// Command returns the command `resume`.
func Command(p *cli.Plugin) *cobra.Command {
	var dryRun string
	var yes bool
	command := &cobra.Command{
		Use:   "resume [--yes]",
		Short: "Allow Sallyport to act on machines after a restore of etcd",
		Long: "After a restore of etcd, Sallyport sends nothing to runtimes, because its objects are older than the machines. The command\n" +
			"lists the objects on which Sallyport would act, in all namespaces. With --yes, or if there are none, it allows that.\n\n" +
			"Requires the right list on all kinds of Sallyport, and get and patch on the validating webhook configuration\n" +
			cli.PoliciesConfiguration + ".",
		Example: `  # List what Sallyport would act on
  kubectl sallyport resume

  # Allow it
  kubectl sallyport resume --yes`,
		Args:              cobra.NoArgs,
		RunE:              func(command *cobra.Command, _ []string) error { return run(command.Context(), p, yes, dryRun) },
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	command.Flags().BoolVar(&yes, "yes", false, "allow it, although Sallyport would act on objects")
	cli.AddDryRun(command, &dryRun)
	return command
}

func run(ctx context.Context, p *cli.Plugin, yes bool, dryRun string) error {
	c, err := p.Connect()
	if err != nil {
		return err
	}
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: cli.PoliciesConfiguration}}
	if err := c.Get(ctx, client.ObjectKeyFromObject(configuration), configuration); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading whether etcd was restored: %w", err)
	}
	since, is := configuration.Annotations[v1alpha1.AnnotationRestored]
	if !is {
		fmt.Fprintln(p.Out, "No restore of etcd waits for this command")
		return nil
	}
	found, err := survey(ctx, c)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.Out, "A restore of etcd was noticed at %s\n", since)
	if err := cli.Render(p.Out, found, p.Now()); err != nil {
		return err
	}
	if !yes && !found.none() {
		return errors.New("nothing was allowed; to have Sallyport act on these objects: kubectl sallyport resume --yes")
	}
	if dryRun != cli.DryRunClient {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null},"resourceVersion":%q}}`,
			v1alpha1.AnnotationRestored, configuration.ResourceVersion))
		if err := cli.Writer(c, dryRun).Patch(ctx, configuration, patch, client.FieldOwner(cli.FieldManager)); err != nil {
			return fmt.Errorf("allowing it: %w", err)
		}
	}
	fmt.Fprintf(p.Out, "Sallyport acts on machines again%s\n", cli.DryRunSuffix[dryRun])
	return nil
}

// waiting is an object on which Sallyport would act.
type waiting struct{ namespace, object, does string }

// survey is what would be done.
type surveyed struct {
	all []waiting
	// unseen counts the machines that were not looked at since the restore.
	unseen int
}

func (s *surveyed) none() bool { return len(s.all) == 0 && s.unseen == 0 }

// Text writes a table.
func (s *surveyed) Text(page *cli.Page) {
	if len(s.all) > 0 {
		page.Row("NAMESPACE", "OBJECT", "WHAT SALLYPORT WOULD ACT ON")
	}
	for _, w := range s.all {
		page.Row(w.namespace, w.object, w.does)
	}
	if s.unseen > 0 {
		page.Line("VirtualMachines that Sallyport has not looked at since: %d. Repeat the command in a minute, or see that a replica runs", s.unseen)
	}
}

// halt is the sentence by which a condition says that an action waits.
var halt = runtime.Message(runtime.ErrRestored)

func survey(ctx context.Context, c *cli.Cluster) (*surveyed, error) {
	found := &surveyed{}
	for _, kind := range v1alpha1.Kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind.Name + "List"))
		if err := c.List(ctx, list); err != nil {
			if apierrors.IsNotFound(err) {
				continue // a definition that is not installed
			}
			return nil, fmt.Errorf("listing objects of kind %s: %w", kind.Name, err)
		}
		for i := range list.Items {
			found.add(kind.Name, &list.Items[i])
		}
	}
	slices.SortFunc(found.all, func(a, b waiting) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.object, b.object))
	})
	return found, nil
}

func (s *surveyed) add(kind string, o *unstructured.Unstructured) {
	var status struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := kruntime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &status); err != nil {
		return // the API server validates conditions
	}
	if kind == "VirtualMachine" && v1alpha1.ConditionReadOnly.In(status.Status.Conditions) == nil {
		s.unseen++
	}
	for _, condition := range status.Status.Conditions {
		if condition.Type == string(v1alpha1.ConditionReadOnly) || !strings.Contains(condition.Message, halt) {
			continue
		}
		does := strings.TrimSuffix(strings.TrimSuffix(condition.Message, halt), ": ")
		s.all = append(s.all, waiting{o.GetNamespace(), kind + "/" + o.GetName(), cmp.Or(does, whatOf(kind, o))})
		return
	}
}

// whatOf returns what is done with an object whose condition says no more.
func whatOf(kind string, o *unstructured.Unstructured) string {
	text := func(fields ...string) string {
		s, _, _ := unstructured.NestedString(o.Object, fields...)
		return s
	}
	switch {
	case kind == "VirtualMachineOperation":
		return text("spec", "type") + " of " + text("spec", "virtualMachineName")
	case o.GetDeletionTimestamp() != nil:
		return "the object is being deleted"
	case kind == "VirtualMachine" && text("status", "instanceID") == "":
		return "the machine does not exist yet"
	case kind == "VirtualDisk" && text("status", "diskID") == "":
		return "the disk does not exist yet"
	case kind == "VirtualMachinePool":
		return "the number or the version of members differs"
	}
	return "something is in progress"
}
