package policies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/commands"
	entries "sallyport.dev/sallyport/reconcilers/policy/registration"
)

func gateCommand(p *cli.Plugin) *cobra.Command {
	command := &cobra.Command{
		Use:   "gate",
		Short: "Stop enforcing policies on kinds that are not Sallyport's, in an emergency",
		Long: "Opens and closes the gate. While it is open, requests about kinds that are not Sallyport's, such as Deployments and Pods, are\n" +
			"admitted with a warning, whatever policies say, also if no replica of Sallyport runs. Sallyport's own kinds stay guarded.\n\n" +
			"Requires the rights get and patch on the validating and mutating webhook configuration " + cli.PoliciesConfiguration + ". These are rights\n" +
			"of cluster administrators, because they also allow removing the webhooks.",
		Example: `  # Admit everything for an hour, and close the gate again
  kubectl sallyport gate open --for 1h --reason "ticket 42"
  kubectl sallyport gate close`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(gateOpenCommand(p), gateCloseCommand(p), gateStatusCommand(p))
	return command
}

func gateOpenCommand(p *cli.Plugin) *cobra.Command {
	var reason, dryRun string
	var lasts time.Duration
	command := &cobra.Command{
		Use:   "open --for 1h --reason REASON",
		Short: "Admit all requests about kinds that are not Sallyport's for a limited time",
		Long: "Opens the gate. It closes by itself: replicas evaluate policies again when the time is over, and the leader restores the\n" +
			"webhook configurations. If no replica runs then, requests are admitted until one does.\n\n" +
			"If the gate is open already, the command replaces its time and its reason.",
		Example: `  # Admit everything for an hour, while a policy that denies too much is repaired
  kubectl sallyport gate open --for 1h --reason "ticket 42: deployments cannot be rolled out"`,
		Args: func(command *cobra.Command, args []string) error {
			switch {
			case strings.TrimSpace(reason) == "":
				return cli.UsageError(command, errors.New("--reason is required: it is shown in warnings, events and conditions"))
			case lasts < time.Minute || lasts > entries.LongestOpening:
				return cli.UsageError(command, fmt.Errorf("invalid --for %s: must be between 1m and %s", lasts, entries.LongestOpening))
			}
			return cobra.NoArgs(command, args)
		},
		RunE: func(command *cobra.Command, _ []string) error {
			return openGate(command.Context(), p, reason, lasts, dryRun)
		},
	}
	command.Flags().StringVar(&reason, "reason", "", "why, for others (required)")
	command.Flags().DurationVar(&lasts, "for", 0, "how long the gate stays open, such as 1h (required, maximum 24h)")
	cli.AddDryRun(command, &dryRun)
	return command
}

func gateCloseCommand(p *cli.Plugin) *cobra.Command {
	var dryRun string
	command := &cobra.Command{
		Use: "close", Short: "Enforce policies on all kinds again", Args: cobra.NoArgs,
		Long: "Closes the gate. Replicas evaluate policies again at once, and the leader restores the webhook configurations. If no replica\n" +
			"runs, requests are admitted until one does.",
		Example: `  # Enforce policies again
  kubectl sallyport gate close`,
		RunE: func(command *cobra.Command, _ []string) error { return closeGate(command.Context(), p, dryRun) },
	}
	cli.AddDryRun(command, &dryRun)
	return command
}

func gateStatusCommand(p *cli.Plugin) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show whether the gate is open", Args: cobra.NoArgs,
		Long: "Shows until when the gate is open, who says to have opened it and why, how many replicas are serving, and what the API server\n" +
			"does with requests that no replica answers.",
		Example: `  # Is the gate open?
  kubectl sallyport gate status`,
		RunE: func(command *cobra.Command, _ []string) error { return gateStatus(command.Context(), p) },
	}
}

// gate is the two webhook configurations in which policies are registered.
type gate struct {
	*cli.Cluster
	validating *admissionregistrationv1.ValidatingWebhookConfiguration
	mutating   *admissionregistrationv1.MutatingWebhookConfiguration
}

// findGate reads the configurations.
func findGate(ctx context.Context, p *cli.Plugin) (*gate, error) {
	c, err := p.Connect()
	if err != nil {
		return nil, err
	}
	g := &gate{Cluster: c}
	meta := metav1.ObjectMeta{Name: cli.PoliciesConfiguration}
	g.validating = &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta}
	g.mutating = &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta}
	for _, configuration := range []client.Object{g.validating, g.mutating} {
		err := g.Get(ctx, client.ObjectKeyFromObject(configuration), configuration)
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("finding the gate: %w; without it, no policy is asked about kinds that are not Sallyport's, and helm upgrade creates it again", err)
		}
		if err != nil {
			return nil, fmt.Errorf("finding the gate: %w", err)
		}
	}
	return g, nil
}

// change writes a configuration, and retries after a conflict.
func (g *gate) change(ctx context.Context, configuration client.Object, dryRun string, change func(client.Object)) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := g.Get(ctx, client.ObjectKeyFromObject(configuration), configuration); err != nil {
			return err
		}
		before := configuration.DeepCopyObject().(client.Object)
		change(configuration)
		if dryRun == cli.DryRunClient {
			return nil
		}
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		return cli.Writer(g, dryRun).Patch(ctx, configuration, patch, client.FieldOwner(cli.FieldManager))
	})
	if err != nil {
		return fmt.Errorf("writing %T %s: %w", configuration, configuration.GetName(), err)
	}
	return nil
}

// openGate writes the opening first, because otherwise the leader restores the entries.
func openGate(ctx context.Context, p *cli.Plugin, reason string, lasts time.Duration, dryRun string) error {
	g, err := findGate(ctx, p)
	if err != nil {
		return err
	}
	who, err := g.WhoAmI(ctx)
	if err != nil {
		return err
	}
	now := p.Now()
	is := entries.Opening{Until: now.Add(lasts), Reason: strings.TrimSpace(reason), By: who.Username}
	if was, there := entries.OpeningOf(g.validating); there && was.Counts(now) {
		fmt.Fprintf(p.Out, "The gate was open %s\n", was)
	}
	if err := g.change(ctx, g.validating, dryRun, func(c client.Object) { is.Write(c); entries.Ease(c) }); err != nil {
		return err
	}
	if err := g.change(ctx, g.mutating, dryRun, func(c client.Object) { entries.Ease(c) }); err != nil {
		return fmt.Errorf("the gate is open, but if no replica of Sallyport runs, requests are still denied by policies that change objects; repeat the command: %w", err)
	}
	fmt.Fprintf(p.Out, "The gate is open until %s: requests about kinds that are not Sallyport's are admitted with a warning%s\n"+
		"To close it: kubectl sallyport gate close\n", is.Until.UTC().Format(time.RFC3339), cli.DryRunSuffix[dryRun])
	warnNoReplica(ctx, p, g, "requests are admitted without a warning, and the gate stays open until a replica runs")
	g.warnFloor(ctx, p)
	return nil
}

// warnFloor tells what still denies requests while the gate is open: policies that the API server evaluates itself. It says nothing if they
// cannot be read.
func (g *gate) warnFloor(ctx context.Context, p *cli.Plugin) {
	floor := &admissionregistrationv1.ValidatingAdmissionPolicy{}
	if g.Get(ctx, client.ObjectKey{Name: cli.Product + "-deletion-protected"}, floor) != nil &&
		g.Get(ctx, client.ObjectKey{Name: cli.Product + "-scaling-guard"}, floor) != nil {
		return
	}
	name, namespace := cmp.Or(floor.Annotations[cli.HelmNameAnnotation], "RELEASE"), cmp.Or(floor.Annotations[cli.HelmNamespaceAnnotation], "NAMESPACE")
	fmt.Fprintf(p.ErrOut, "Warning: the floor stays closed: ValidatingAdmissionPolicies still enforce a part of the guards (docs/guards.md, The floor). "+
		"To remove it: %s\n", commands.Line("helm", "upgrade", name, "charts/sallyport", "-n", namespace, "--reuse-values", "--set", "floor.enabled=false"))
}

func closeGate(ctx context.Context, p *cli.Plugin, dryRun string) error {
	g, err := findGate(ctx, p)
	if err != nil {
		return err
	}
	if _, there := entries.OpeningOf(g.validating); !there {
		fmt.Fprintln(p.Out, "The gate is closed")
		return nil
	}
	if err := g.change(ctx, g.validating, dryRun, func(c client.Object) { entries.Close(c) }); err != nil {
		return err
	}
	fmt.Fprintf(p.Out, "The gate is closed%s\n", cli.DryRunSuffix[dryRun])
	warnNoReplica(ctx, p, g, "requests are admitted until one runs")
	return nil
}

func warnNoReplica(ctx context.Context, p *cli.Plugin, g *gate, then string) {
	if s := g.Service(ctx, p); s.None() {
		fmt.Fprintf(p.ErrOut, "Warning: no replica of Sallyport is serving: %s\n", then)
	}
}

// ignored counts the entries with failurePolicy Ignore.
func (g *gate) ignored() (n int) {
	for i := range g.validating.Webhooks {
		if p := g.validating.Webhooks[i].FailurePolicy; p != nil && *p == admissionregistrationv1.Ignore {
			n++
		}
	}
	for i := range g.mutating.Webhooks {
		if p := g.mutating.Webhooks[i].FailurePolicy; p != nil && *p == admissionregistrationv1.Ignore {
			n++
		}
	}
	return n
}

func gateStatus(ctx context.Context, p *cli.Plugin) error {
	g, err := findGate(ctx, p)
	if err != nil {
		return err
	}
	is, there := entries.OpeningOf(g.validating)
	now, s := p.Now(), g.Service(ctx, p)
	all := len(g.validating.Webhooks) + len(g.mutating.Webhooks)
	switch {
	case there && is.Counts(now):
		fmt.Fprintf(p.Out, "The gate is open %s\n", is)
	case there && s.None():
		fmt.Fprintf(p.Out, "The gate was to close at %s, but no replica of Sallyport is serving: requests are admitted until one runs\n", is.Until.UTC().Format(time.RFC3339))
	case there:
		fmt.Fprintf(p.Out, "The gate is closed; the leader is about to remove the annotations of the opening %s\n", is)
	default:
		fmt.Fprintln(p.Out, "The gate is closed")
	}
	if s.Err == nil {
		fmt.Fprintf(p.Out, "Replicas that are serving: %d\n", len(s.Policies))
	}
	fmt.Fprintf(p.Out, "If no replica answers, the API server admits requests for %d of %d registrations of policies\n", g.ignored(), all)
	return nil
}
