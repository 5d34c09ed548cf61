package why

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/commands"
)

type serverReport struct {
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Reconciled reports whether the status is about the current spec.
	Reconciled bool `json:"reconciled"`
	// Orphans are the first of the machines whose VirtualMachine does not exist, and OrphanCount is their number.
	Orphans     []v1alpha1.VSphereOrphan `json:"orphans,omitempty"`
	OrphanCount int32                    `json:"orphanCount,omitempty"`
}

// server adds the state of a VSphereServer, and the machines without a VirtualMachine.
func (l *looking) server() {
	s := &v1alpha1.VSphereServer{}
	if !l.decode(s) {
		return
	}
	l.r.Server = &serverReport{
		Conditions: s.Status.Conditions, Reconciled: s.Status.ObservedGeneration == s.Generation,
		Orphans: s.Status.Orphans, OrphanCount: s.Status.OrphanCount,
	}
}

func (r *serverReport) Text(p *cli.Page) {
	var waits, orphans []string
	if c := v1alpha1.ConditionReady.In(r.Conditions); c != nil && c.Status != metav1.ConditionTrue {
		waits = append(waits, cli.OneLine(c.Type+" "+p.Condition(c)))
	}
	waitingFor(p, r.Reconciled, waits)
	shown := r.Orphans[:min(len(r.Orphans), shownMembers)]
	for _, o := range shown {
		orphans = append(orphans, cli.OneLine(orphanText(o)))
	}
	if more := int(r.OrphanCount) - len(shown); more > 0 {
		orphans = append(orphans, fmt.Sprintf("and %d more", more))
	}
	p.Row("Orphans:", strings.Join(orphans, "\n"))
	if len(shown) > 0 {
		p.Row("Next step:", "to manage a machine again, create its VirtualMachine, and then: "+takeOverCommand(shown)+"\n"+
			"to release a machine, remove sallyport.owner from its extraConfig in vCenter\n"+
			"if a machine belongs to another cluster, leave it as it is")
	}
}

// orphanText returns the path of a machine, and the VirtualMachine in its mark. Any vCenter user who may edit the machine can forge it.
func orphanText(o v1alpha1.VSphereOrphan) string {
	if o.VirtualMachine == "" {
		return o.Path
	}
	return fmt.Sprintf("%s: VirtualMachine %s (UID %s) does not exist", o.Path, o.VirtualMachine, o.UID)
}

// takeOverCommand returns the command for the first machine whose mark names a VirtualMachine, or its form.
func takeOverCommand(orphans []v1alpha1.VSphereOrphan) string {
	for _, o := range orphans {
		if namespace, name, is := strings.Cut(o.VirtualMachine, "/"); is {
			return commands.Line("kubectl", "sallyport", "take-over", "svm", name, "-n", namespace)
		}
	}
	return commands.Line("kubectl", "sallyport", "take-over", "svm", "NAME", "-n", "NAMESPACE")
}
