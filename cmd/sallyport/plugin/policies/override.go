package policies

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

type overriding struct {
	reason, dryRun string
	lasts          time.Duration
	which          cli.Selection
}

func overrideCommand(p *cli.Plugin) *cobra.Command {
	o := &overriding{}
	command := &cobra.Command{
		Use:   "override POLICY KIND (NAME... | -l SELECTOR | --all) [--for DURATION] --reason REASON",
		Short: "Override a policy for your next requests on an object",
		Long: "Overrides one policy for your own requests on an object, for a limited time. The override is an annotation on the object,\n" +
			"and each request that it admits is recorded as an event. Requires the verb override on the RegoPolicy.\n\n" +
			"To override a policy for a new operation, use --override of the operation command. For another new object, write the\n" +
			"annotation sallyport.dev/override in its manifest.",
		Example: `  # Override policy scaling-guard for ten minutes, and scale the Deployment down
  kubectl sallyport override scaling-guard deployment web -n team-a --for 10m --reason "ticket 42"
  kubectl scale deployment web -n team-a --replicas 0

  # Override policy deletion-protected for several objects
  kubectl sallyport override deletion-protected deployment -l app=web --reason "ticket 42"`,
		Args: func(command *cobra.Command, args []string) error {
			switch {
			case len(args) < 2 || len(args) == 2 && !o.which.Given() && !strings.Contains(args[1], "/"):
				return cli.UsageError(command, errors.New("specify POLICY and the object: KIND NAME, KIND/NAME, or KIND with -l or --all"))
			case o.which.Check(cli.NamesIn(args[1:])) != nil:
				return cli.UsageError(command, o.which.Check(cli.NamesIn(args[1:])))
			case strings.TrimSpace(o.reason) == "":
				return cli.UsageError(command, errors.New("--reason is required: it is recorded in events"))
			case o.lasts < time.Second || o.lasts > cli.LongestOverride:
				return cli.UsageError(command, fmt.Errorf("invalid --for %s: must be between 1s and %s", o.lasts, cli.LongestOverride))
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error { return runOverride(command.Context(), p, o, args) },
	}
	o.which.AddTargetFlags(p, command, 1)
	targets := command.ValidArgsFunction
	command.ValidArgsFunction = func(command *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return p.CompleteOne(cli.PolicyKind)(command, args, word)
		}
		return targets(command, args, word)
	}
	f := command.Flags()
	f.DurationVar(&o.lasts, "for", cli.DefaultOverride, "how long the override is valid, at most 1h")
	f.StringVar(&o.reason, "reason", "", "why the policy is overridden, recorded in events (required)")
	cli.AddDryRun(command, &o.dryRun)
	return command
}

func runOverride(ctx context.Context, p *cli.Plugin, o *overriding, args []string) error {
	policy, err := policyName(args[0])
	if err != nil {
		return err
	}
	c, err := p.Connect()
	if err != nil {
		return err
	}
	who, err := c.WhoAmI(ctx)
	if err != nil {
		return err
	}
	if !c.MayOverride(ctx, policy) {
		return fmt.Errorf("user %s cannot override policy %s: the user needs the verb override on regopolicies.%s %[2]s, and spec.override of the policy must allow it",
			who.Username, policy, v1alpha1.GroupName)
	}
	objects, err := p.Find(c.Namespace, o.which, args[1:]...)
	if err != nil {
		return err
	}
	failed := false
	for _, object := range objects {
		written := v1alpha1.Override{Policy: policy, UID: object.GetUID(), By: who.Username, Until: p.Now().Add(o.lasts), Reason: o.reason}
		text, err := written.Text()
		if err != nil {
			return fmt.Errorf("writing the override: %w", err)
		}
		if err := cli.Annotate(ctx, c, object, map[string]any{v1alpha1.AnnotationOverride: text}, o.dryRun); err != nil {
			fmt.Fprintln(p.ErrOut, cli.Describe(fmt.Errorf("annotating %s: %w", object.Name(), err)))
			failed = true
			continue
		}
		fmt.Fprintf(p.Out, "%s annotated%s: requests by %s override policy %s until %s\n", object.Name(), cli.DryRunSuffix[o.dryRun], who.Username, policy, written.Until.UTC().Format(time.RFC3339))
	}
	if failed {
		return cli.ErrReported
	}
	return nil
}
