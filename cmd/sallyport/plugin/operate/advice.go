package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

// wayOut prints the operations that all policies allow, if several policies denied one. Each denial only lists what its own policy
// allows.
func wayOut(ctx context.Context, p *cli.Plugin, c *cli.Cluster, name string, err error) {
	said, reasons := cli.ParseResponse(err)
	several := slices.ContainsFunc(reasons, func(o cli.Objection) bool { return o.Policy != reasons[0].Policy })
	machine := &v1alpha1.VirtualMachine{}
	if said != cli.Refused || !several || c.Get(ctx, c.Key(name), machine) != nil {
		return
	}
	var commands []string
	operations := slices.DeleteFunc(cli.MachineRequests(), func(a cli.Answer) bool { return a.Type == v1alpha1.OperationDelete })
	for _, a := range c.AskMachine(ctx, machine, operations) {
		switch a.Verdict {
		case cli.Accepted:
			commands = append(commands, a.Command())
		case cli.Unknown:
			return
		}
	}
	fmt.Fprintf(p.ErrOut, "Allowed now by all policies: %s\n", cmp.Or(strings.Join(commands, ", "), "none"))
}

// wayPast prints how to override the only policy that denied an operation, if the API server would admit that of this user: some denials
// cannot be overridden.
func wayPast(ctx context.Context, p *cli.Plugin, c *cli.Cluster, operation *v1alpha1.VirtualMachineOperation, err error) {
	said, reasons := cli.ParseResponse(err)
	if said != cli.Refused || reasons[0].Policy == "" {
		return
	}
	policy := reasons[0].Policy
	for _, o := range reasons {
		if o.Policy != policy {
			return // an override is for one
		}
	}
	who, err := c.WhoAmI(ctx)
	if err != nil {
		return
	}
	past, tried := v1alpha1.Override{Policy: policy, By: who.Username, Until: p.Now().Add(cli.DefaultOverride), Reason: "REASON"}, operation.DeepCopy()
	tried.Annotations = map[string]string{v1alpha1.AnnotationOverride: past.String()}
	if c.Try(ctx, tried) == nil {
		fmt.Fprintf(p.ErrOut, "To override %s once (recorded as an event): --override %q\n", policy, policy+": REASON")
	}
}

// overrideOf parses the flag --override, "POLICY: REASON", for a new object.
func overrideOf(flag string, now time.Time) (*v1alpha1.Override, error) {
	policy, reason, both := strings.Cut(flag, ":")
	o := &v1alpha1.Override{Policy: strings.TrimSpace(policy), Until: now.Add(cli.DefaultOverride), Reason: strings.TrimSpace(reason)}
	if !both || o.Policy == "" || o.Reason == "" || strings.ContainsAny(o.Policy, "; ") {
		return nil, fmt.Errorf(`invalid --override %q: must be "POLICY: REASON", such as "operations-applicability: the guest hangs, ticket 42"`, flag)
	}
	return o, nil
}
