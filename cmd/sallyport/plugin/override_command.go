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
	which          selection
}

func (p *plugin) overrideCommand() *cobra.Command {
	o := &overriding{}
	command := &cobra.Command{
		Use:   "override POLICY KIND (NAME... | -l SELECTOR | --all) --reason REASON",
		Short: "Let your next request about an object pass a policy that refuses it",
		Long: "Writes the override into an annotation of the object: for half an hour your own requests about it pass that one policy,\n" +
			"which an event on the object tells to all. It takes the verb override on the policy. An object that is yet to be created\n" +
			"needs the annotation in its manifest, an operation --override.",
		Example: `  # The guard is wrong about this one: let me scale it down
  kubectl sallyport override scaling-guard deployment web --reason "ticket 42"
  kubectl scale deployment web --replicas 0

  # And about these
  kubectl sallyport override deletion-protected deployment -l app=web --reason "ticket 42"`,
		Args: func(command *cobra.Command, args []string) error {
			switch {
			case len(args) < 2 || len(args) == 2 && !o.which.given() && !strings.Contains(args[1], "/"):
				return usage(command, errors.New("name a policy, and the object as KIND NAME or KIND/NAME, or KIND with -l or --all"))
			case o.which.check(namesIn(args[1:])) != nil:
				return usage(command, o.which.check(namesIn(args[1:])))
			case strings.TrimSpace(o.reason) == "":
				return usage(command, errors.New("--reason is missing: it is told to all"))
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
	f.StringVar(&o.reason, "reason", "", "why, for all to read")
	addDryRun(command, &o.dryRun, "judged")
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
		return fmt.Errorf("%s may not override policy %s: it takes the verb override on regopolicies.%s %[2]s, and a spec.override that allows it",
			who.Username, policy, v1alpha1.GroupName)
	}
	objects, err := p.find(c.namespace, o.which, args[1:]...)
	if err != nil {
		return err
	}
	failed := false
	for _, object := range objects {
		written := v1alpha1.Override{Policy: policy, UID: object.GetUID(), By: who.Username, Until: p.now().Add(overrideLasts), Reason: o.reason}
		if err := annotate(ctx, c, object, written.String(), o.dryRun); err != nil {
			fmt.Fprintln(p.ErrOut, describe(fmt.Errorf("annotating %s: %w", object.name(), err)))
			failed = true
			continue
		}
		fmt.Fprintf(p.Out, "%s annotated%s: %s may pass %s until %s\n", object.name(), dryRuns[o.dryRun], who.Username, policy, written.Until.UTC().Format(time.RFC3339))
	}
	if failed {
		return errTold
	}
	return nil
}

// annotate writes the override into the object that was found, and into no other of its name.
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
