package policies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/bundled"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
)

// pollPause is the pause between two polls for a reconciled change.
const pollPause = 100 * time.Millisecond

type reset struct {
	*cli.Plugin
	all    bool
	dryRun string
}

func resetCommand(p *cli.Plugin) *cobra.Command {
	r := &reset{Plugin: p}
	command := &cobra.Command{
		Use:   "reset NAME... | --all",
		Short: "Reset edited fields of shipped policies",
		Long: "Resets edited fields of shipped policies to the content of the installed release with its Helm values, so that upgrades\n" +
			"apply to these fields again. Added fields are removed, removed fields are restored, and a deleted policy is created\n" +
			"again. The command uses your own permissions, and policies evaluate the request like any other edit.\n\n" +
			"The shipped policies are read from a ConfigMap in the namespace of -n. Without -n, all namespaces are searched.",
		Example: `  # List policies with edited fields
  kubectl sallyport policies

  # Reset one policy
  kubectl sallyport policies reset operations-supersede

  # Show which fields of all policies would be reset
  kubectl sallyport policies reset --all --dry-run=client`,
		Args: func(command *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && !r.all:
				return cli.UsageError(command, errors.New("specify at least one policy, or --all"))
			case len(args) > 0 && r.all:
				return cli.UsageError(command, errors.New("name cannot be provided when --all is specified"))
			}
			return nil
		},
		RunE:              func(command *cobra.Command, args []string) error { return r.run(command, args) },
		ValidArgsFunction: r.complete,
	}
	command.Flags().BoolVar(&r.all, "all", false, "reset all shipped policies")
	cli.AddDryRun(command, &r.dryRun)
	return command
}

// complete offers the shipped policies that are not named yet.
func (r *reset) complete(command *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var names []string
	for _, policy := range r.MetadataOf(command.Context(), cli.PolicyKind) {
		if policy.Labels[shipping.Label] == "true" && !slices.Contains(args, policy.Name) {
			names = append(names, policy.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (r *reset) run(command *cobra.Command, args []string) error {
	ctx := command.Context()
	for i, argument := range args {
		var err error
		if args[i], err = policyName(argument); err != nil {
			return cli.UsageError(command, err)
		}
	}
	c, err := r.Connect()
	if err != nil {
		return err
	}
	shipped, err := shipped(ctx, c, *r.Flags.Namespace)
	if shipped == nil {
		return err
	}
	failed := err != nil
	if failed { // of other policies, perhaps
		fmt.Fprintln(r.ErrOut, cli.Describe(err))
	}
	chosen, missing := shipped.choose(args)
	for _, name := range missing {
		fmt.Fprintln(r.ErrOut, cli.Describe(notShipped(ctx, c, name, shipped)))
		failed = true
	}
	var changed []string
	for i := range chosen {
		did, err := r.one(ctx, c, &chosen[i])
		if err != nil {
			fmt.Fprintln(r.ErrOut, cli.Describe(fmt.Errorf("resetting %s: %w", chosen[i].Name, err)))
			failed = true
		}
		if did {
			changed = append(changed, chosen[i].Name)
		}
	}
	if r.dryRun == cli.DryRunNone {
		r.await(ctx, c, changed)
	}
	if failed {
		return cli.ErrReported
	}
	if r.all && len(changed) == 0 {
		fmt.Fprintf(r.Out, "Nothing to reset: all %d policies are unchanged from release %s\n", len(chosen), shipped.release)
	}
	return nil
}

func (r *reset) one(ctx context.Context, c *cli.Cluster, shipped *v1alpha1.RegoPolicy) (changed bool, err error) {
	object := &v1alpha1.RegoPolicy{}
	err = c.Get(ctx, client.ObjectKeyFromObject(shipped), object)
	absent := apierrors.IsNotFound(err)
	if err != nil && !absent {
		return false, err
	}
	var fields []string
	if !absent {
		fields = shipping.Edited(object, shipped)
	}
	name := "regopolicy." + v1alpha1.GroupName + "/" + shipped.Name
	if !absent && len(fields) == 0 && shipping.Shipped(object) && !shipping.ResetWanted(object) {
		if !r.all {
			fmt.Fprintf(r.Out, "%s unchanged: no field was edited\n", name)
		}
		return false, nil
	}
	if r.dryRun != cli.DryRunClient {
		if err := shipping.Reset(ctx, cli.Writer(c, r.dryRun), shipped); err != nil {
			return false, err
		}
	}
	did := "reset"
	if absent {
		did = "created"
	}
	fmt.Fprintf(r.Out, "%s %s%s\n", name, did, cli.DryRunSuffix[r.dryRun])
	for _, field := range fields {
		fmt.Fprintf(r.Out, "  %s\n", field)
	}
	return true, nil
}

// await waits until the status of each policy reflects the reset, so that the next command does not show the old status. The reset is
// complete in any case.
func (r *reset) await(ctx context.Context, c *cli.Cluster, names []string) {
	limited, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		return wait.PollUntilContextCancel(limited, pollPause, true, func(ctx context.Context) (bool, error) {
			object := &v1alpha1.RegoPolicy{}
			err := c.Get(ctx, client.ObjectKey{Name: name}, object)
			return apierrors.IsNotFound(err) || err == nil && seen(object), nil
		}) == nil
	})
	if len(names) > 0 && ctx.Err() == nil {
		fmt.Fprintf(r.ErrOut, "The status of %s does not reflect the reset yet; if this persists, check that Sallyport is running: kubectl sallyport policies\n",
			strings.Join(names, ", "))
	}
}

// seen reports whether the status of a policy reflects the reset.
func seen(policy *v1alpha1.RegoPolicy) bool {
	return policy.Status.ObservedGeneration >= policy.Generation && len(edited(policy)) == 0
}

type shippedPolicies struct {
	policies []v1alpha1.RegoPolicy
	release  string
}

// shipped finds and reads the ConfigMap of the installed release, in one namespace or in all. After an error it returns the part that it
// could read, nil if there is none.
func shipped(ctx context.Context, c *cli.Cluster, namespace string) (*shippedPolicies, error) {
	name, _, err := c.NameOfChart(ctx)
	if err != nil {
		return nil, err
	}
	list := &corev1.ConfigMapList{}
	if err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{cli.NameLabel: name}); err != nil {
		err = cli.SearchError("the ConfigMap with the shipped policies", namespace, err)
		if apierrors.IsForbidden(err) {
			err = fmt.Errorf("%w. Without this right, Sallyport resets a policy on request: %s", err, commands.Line("kubectl", "annotate", "--overwrite",
				"regopolicies."+v1alpha1.GroupName, "NAME", shipping.ReleaseAnnotation+"="+shipping.ResetAsked))
		}
		return nil, err
	}
	maps := slices.DeleteFunc(cli.Pointers(list.Items), func(m *corev1.ConfigMap) bool { return m.Annotations[shipping.ReleaseAnnotation] == "" })
	if err := cli.OnlyOne("ConfigMaps with shipped policies", maps); err != nil {
		return nil, err
	}
	if len(maps) == 0 {
		return nil, fmt.Errorf("no ConfigMap with shipped policies found (label %s=%s, annotation %s); check whether Sallyport is installed",
			cli.NameLabel, name, shipping.ReleaseAnnotation)
	}
	sources, err := bundled.Sources()
	if err != nil {
		return nil, err
	}
	policies, err := shipping.Read(maps[0], sources)
	return &shippedPolicies{policies: policies, release: maps[0].Annotations[shipping.ReleaseAnnotation]}, err
}

// choose returns the policies with the names, each once, or all policies if there are no names, and the names that do not exist.
func (s *shippedPolicies) choose(names []string) (chosen []v1alpha1.RegoPolicy, missing []string) {
	if len(names) == 0 {
		return s.policies, nil
	}
	for _, policy := range s.policies { // in their order: libraries first
		if slices.Contains(names, policy.Name) {
			chosen = append(chosen, policy)
		}
	}
	for i, name := range names {
		known := slices.ContainsFunc(s.policies, func(p v1alpha1.RegoPolicy) bool { return p.Name == name })
		if !known && !slices.Contains(names[:i], name) {
			missing = append(missing, name)
		}
	}
	return chosen, missing
}

// notShipped is the error for a policy that cannot be reset.
func notShipped(ctx context.Context, c *cli.Cluster, name string, s *shippedPolicies) error {
	why := "RegoPolicy " + name + " does not exist"
	if c.Get(ctx, client.ObjectKey{Name: name}, &v1alpha1.RegoPolicy{}) == nil {
		why = "RegoPolicy " + name + " is not a shipped policy"
	}
	names := make([]string, len(s.policies))
	for i := range s.policies {
		names[i] = s.policies[i].Name
	}
	slices.Sort(names)
	return fmt.Errorf("%s; release %s ships the policies %s", why, s.release, strings.Join(names, ", "))
}
