package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
)

type templateReport struct {
	Status v1alpha1.VSphereTemplateStatus `json:"status"`
	// Reconciled reports whether the status is about the current spec.
	Reconciled bool `json:"reconciled"`
	// Users are the VirtualMachines that are yet to be created from it, and the VirtualMachinePools, with their resource names.
	Users []string `json:"users,omitempty"`
}

// template adds what a VSphereTemplate waits for, and what refers to it.
func (l *looking) template(ctx context.Context) error {
	t := &v1alpha1.VSphereTemplate{}
	if !l.decode(t) {
		return nil
	}
	l.r.Template = &templateReport{Status: t.Status, Reconciled: t.Status.ObservedGeneration == t.Generation}
	if err := l.users(ctx); err != nil {
		l.r.unknown("users of the template", err)
	}
	return nil
}

// users adds what refers to the VSphereTemplate, as policy deletion-references does.
func (l *looking) users(ctx context.Context) error {
	namespace, name := client.InNamespace(l.object.GetNamespace()), l.object.GetName()
	var machines v1alpha1.VirtualMachineList
	var pools v1alpha1.VirtualMachinePoolList
	err := errors.Join(
		l.List(ctx, &machines, namespace, client.MatchingFields{v1alpha1.FieldMachineTemplate: name}),
		l.List(ctx, &pools, namespace, client.MatchingFields{v1alpha1.FieldPoolTemplate: name}),
	)
	for i := range machines.Items {
		if vm := &machines.Items[i]; vm.Status.InstanceID == "" && vm.DeletionTimestamp.IsZero() {
			l.r.Template.Users = append(l.r.Template.Users, "svm/"+vm.Name)
		}
	}
	for i := range pools.Items {
		if pool := &pools.Items[i]; pool.DeletionTimestamp.IsZero() {
			l.r.Template.Users = append(l.r.Template.Users, "svmpool/"+pool.Name)
		}
	}
	return err
}

func (r *templateReport) Text(p *cli.Page) {
	var releases, waits []string
	for i := range r.Status.FailureDomains {
		d := &r.Status.FailureDomains[i]
		releases = append(releases, fmt.Sprintf("%s: %s", d.Name, has(d)))
		if c := v1alpha1.ConditionReady.In(d.Conditions); c != nil && (c.Status != metav1.ConditionTrue || c.Message != "") {
			waits = append(waits, cli.OneLine(fmt.Sprintf("%s: %s; Ready %s", d.Name, stepOf(d), p.Condition(c))))
		}
	}
	p.Row("Releases:", cmp.Or(strings.Join(releases, "\n"), "none"))
	waitingFor(p, r.Reconciled, waits)
	p.Row("Used by:", cmp.Or(cli.SomeOf(r.Users, shownMembers), "none"))
}

func has(d *v1alpha1.VSphereFailureDomainStatus) string {
	var kept []string
	for _, v := range d.Versions {
		if v.Release != d.Release {
			kept = append(kept, v.Release)
		}
	}
	text := cmp.Or(d.Release, "none")
	if len(kept) > 0 {
		text += "; kept: " + cli.SomeOf(kept, shownMembers)
	}
	return text
}

// stepOf returns the current step in a failure domain and its progress.
func stepOf(d *v1alpha1.VSphereFailureDomainStatus) string {
	if d.Progress == nil {
		return string(d.Step)
	}
	return fmt.Sprintf("%s (%d%%)", d.Step, *d.Progress)
}
