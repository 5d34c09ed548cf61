package policies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/commands"
)

// Exit codes of audit: objects violate a policy, or the result is unknown.
const (
	codeViolators = 1
	codeUnknown   = 2
)

type auditNow struct {
	*listing
	wait    bool
	timeout time.Duration
}

func auditCommand(p *cli.Plugin) *cobra.Command {
	a := &auditNow{listing: newListing(p)}
	command := &cobra.Command{
		Use:   "audit [POLICY | -l SELECTOR]",
		Short: "Audit existing objects against policies now",
		Long: "Requests an audit of existing objects against a RegoPolicy, or against all RegoPolicies, with spec.backgroundAudit:\n" +
			"Enabled. Shows the progress, and then the objects that violate a policy. The audit does not change any object.\n\n" +
			"Requires permission to patch RegoPolicies.\n\n" +
			"Exit codes: 0 if no object violates a policy, 1 if some objects do, 2 if the result is unknown, for example because\n" +
			"the audit is incomplete.",
		Example: `  # List existing objects that this policy would deny
  kubectl sallyport audit deletion-protected

  # Print the policies as JSON, with the violations in status.violations
  kubectl sallyport audit -o json`,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) > 1 {
				return cli.WithCode(cli.UsageError(command, errors.New("specify at most one POLICY")), codeUnknown)
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			return cli.WithCode(a.run(command, args), codeUnknown)
		},
		ValidArgsFunction: p.CompleteOne(cli.PolicyKind),
	}
	a.addFlags(command)
	f := command.Flags()
	f.BoolVar(&a.wait, "wait", true, "wait for the result of the audit")
	f.DurationVar(&a.timeout, "timeout", 15*time.Minute, "how long to wait for the result")
	return command
}

func (a *auditNow) run(command *cobra.Command, args []string) error {
	ctx := command.Context()
	c, list, name, err := a.read(command, args)
	if err != nil {
		return err
	}
	if a.selector != "" && len(list.Items) == 0 {
		fmt.Fprintln(a.ErrOut, "No resources found")
		return nil
	}
	if list.Items, err = audited(list.Items, name); err != nil {
		return err
	}
	request := a.Now().UTC().Format(time.RFC3339Nano)
	for i := range list.Items {
		if err := requestAudit(ctx, c, &list.Items[i], request); err != nil {
			return err
		}
	}
	if !a.wait {
		for i := range list.Items {
			fmt.Fprintf(a.ErrOut, "audit of %s requested\n", list.Items[i].Name)
		}
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, a.timeout, fmt.Errorf("no result after %v", a.timeout))
	defer cancel()
	worst := 0
	for i := range list.Items {
		policy := &list.Items[i]
		if err := a.await(ctx, c, policy, request); err != nil {
			return err
		}
		worst = max(worst, codeOf(policy.Status.Violations))
		if a.table() {
			a.show(policy)
		}
	}
	if !a.table() {
		if err := a.print(list, name); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(list.Items, func(p v1alpha1.RegoPolicy) bool { return codeOf(p.Status.Violations) == codeViolators }) {
		worst = codeViolators
	}
	if worst != 0 {
		return cli.WithCode(cli.ErrReported, worst)
	}
	return nil
}

// audited returns the policies that can be audited. If name is not empty, that policy must be one of them.
func audited(policies []v1alpha1.RegoPolicy, name string) (all []v1alpha1.RegoPolicy, err error) {
	for _, p := range policies {
		switch {
		case p.Spec.BackgroundAudit == v1alpha1.AuditEnabled && p.Status.ActiveRevision != "":
			all = append(all, p)
		case name == "":
		case p.Spec.BackgroundAudit != v1alpha1.AuditEnabled:
			return nil, fmt.Errorf("RegoPolicy %s is not audited because spec.backgroundAudit is Disabled; to enable it: %s", name,
				commands.Line("kubectl", "patch", "rego", name, "--type=merge", "-p", `{"spec": {"backgroundAudit": "Enabled"}}`))
		default:
			return nil, fmt.Errorf("RegoPolicy %s cannot be audited because it has no active revision; to see why: %s", name, cli.PoliciesCommand(name))
		}
	}
	if len(all) == 0 {
		return nil, errors.New("no RegoPolicy to audit: no active RegoPolicy has spec.backgroundAudit: Enabled")
	}
	return all, nil
}

func requestAudit(ctx context.Context, c *cli.Cluster, policy *v1alpha1.RegoPolicy, request string) error {
	before := policy.DeepCopy()
	if policy.Annotations == nil {
		policy.Annotations = map[string]string{}
	}
	policy.Annotations[v1alpha1.AnnotationAudit] = request
	return c.Patch(ctx, policy, client.MergeFrom(before))
}

// await reads a policy until it has the requested result, and shows the progress.
func (a *auditNow) await(ctx context.Context, c *cli.Cluster, policy *v1alpha1.RegoPolicy, request string) error {
	fmt.Fprintf(a.ErrOut, "%s: audit requested\n", policy.Name)
	told := v1alpha1.PolicyAudit{}
	err := wait.PollUntilContextCancel(ctx, pollPause, true, func(ctx context.Context) (bool, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(policy), policy); err != nil {
			return false, err
		}
		if policy.Annotations[v1alpha1.AnnotationAudit] != request {
			return false, fmt.Errorf("another user requested an audit of %s in the meantime; to see its result: %s", policy.Name, cli.PoliciesCommand(policy.Name))
		}
		if is := policy.Status.Auditing; is != nil && *is != told {
			told = *is
			fmt.Fprintf(a.ErrOut, "%s: %d objects audited, now auditing %s\n", policy.Name, is.Objects, is.Resource)
		}
		v := policy.Status.Violations
		return v != nil && v.Requested == request, nil
	})
	if ctx.Err() != nil && err != nil {
		return fmt.Errorf("waiting for the audit of %s: %w; to see whether Sallyport is running: kubectl sallyport policies", policy.Name, context.Cause(ctx))
	}
	return err
}

func codeOf(v *v1alpha1.PolicyViolations) int {
	switch {
	case v.Count != nil && *v.Count > 0, v.AtLeast > 0:
		return codeViolators
	case v.Count == nil:
		return codeUnknown
	}
	return 0
}

func (a *auditNow) show(policy *v1alpha1.RegoPolicy) {
	v := policy.Status.Violations
	if v.Count != nil {
		fmt.Fprintf(a.Out, "%s: %d of %d objects violate the policy\n", policy.Name, *v.Count, v.Objects)
	} else {
		fmt.Fprintf(a.Out, "%s: at least %d of %d audited objects violate the policy; incomplete: %s\n", policy.Name, v.AtLeast, v.Objects, v.Incomplete)
	}
	for _, line := range violators(v, len(v.First)) {
		fmt.Fprintln(a.Out, " ", line)
	}
}
