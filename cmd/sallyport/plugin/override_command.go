package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// overriding are the flags of override.
type overriding struct {
	reason, dryRun string
	lasts          time.Duration
	which          selection
}

func (p *plugin) overrideCommand() *cobra.Command {
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
			case len(args) < 2 || len(args) == 2 && !o.which.given() && !strings.Contains(args[1], "/"):
				return usage(command, errors.New("specify POLICY and the object: KIND NAME, KIND/NAME, or KIND with -l or --all"))
			case o.which.check(namesIn(args[1:])) != nil:
				return usage(command, o.which.check(namesIn(args[1:])))
			case strings.TrimSpace(o.reason) == "":
				return usage(command, errors.New("--reason is required: it is recorded in events"))
			case o.lasts < time.Second || o.lasts > overrideAtMost:
				return usage(command, fmt.Errorf("invalid --for %s: must be between 1s and %s", o.lasts, overrideAtMost))
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error { return p.override(command.Context(), o, args) },
		ValidArgsFunction: func(command *cobra.Command, args []string, word string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return p.completePolicy(command, args, word)
			}
			return p.completeTargets(command, &o.which, args[1:], word)
		},
	}
	o.which.addFlags(p, command, func(args []string) string { return strings.Join(args[min(1, len(args)):min(2, len(args))], "") })
	f := command.Flags()
	f.DurationVar(&o.lasts, "for", overrideLasts, "how long the override is valid, at most 1h")
	f.StringVar(&o.reason, "reason", "", "why the policy is overridden, recorded in events (required)")
	addDryRun(command, &o.dryRun)
	return command
}

func (p *plugin) override(ctx context.Context, o *overriding, args []string) error {
	policy, err := policyName(args[0])
	if err != nil {
		return err
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	who, err := c.whoami(ctx)
	if err != nil {
		return err
	}
	if !c.mayOverride(ctx, policy) {
		return fmt.Errorf("user %s cannot override policy %s: the user needs the verb override on regopolicies.%s %[2]s, and spec.override of the policy must allow it",
			who.Username, policy, v1alpha1.GroupName)
	}
	objects, err := p.find(c.namespace, o.which, args[1:]...)
	if err != nil {
		return err
	}
	failed := false
	for _, object := range objects {
		written := v1alpha1.Override{Policy: policy, UID: object.GetUID(), By: who.Username, Until: p.now().Add(o.lasts), Reason: o.reason}
		text, err := written.Text()
		if err != nil {
			return fmt.Errorf("writing the override: %w", err)
		}
		if err := annotate(ctx, c, object, text, o.dryRun); err != nil {
			fmt.Fprintln(p.ErrOut, describe(fmt.Errorf("annotating %s: %w", object.name(), err)))
			failed = true
			continue
		}
		fmt.Fprintf(p.Out, "%s annotated%s: requests by %s override policy %s until %s\n", object.name(), dryRuns[o.dryRun], who.Username, policy, written.Until.UTC().Format(time.RFC3339))
	}
	if failed {
		return errReported
	}
	return nil
}

// annotate writes the override to the object. The UID is a precondition, so that it does not reach another object of the same name.
func annotate(ctx context.Context, c client.Client, object found, text, dryRun string) error {
	if dryRun == dryRunClient {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.GetUID(), "annotations": map[string]string{v1alpha1.AnnotationOverride: text},
	}})
	if err != nil {
		return err
	}
	return writer(c, dryRun).Patch(ctx, object.Unstructured, client.RawPatch(types.MergePatchType, patch))
}
