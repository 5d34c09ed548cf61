package pool

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// What a model has of a template: somebody wants a release, vCenter gets it under the name, and only then people are told, each at any time.

// following has a pool follow VSphereTemplate ubuntu.
func following(s *v1alpha1.VirtualMachinePoolSpec) {
	s.Rollout.FollowTemplate = true
	s.VirtualMachineTemplate.Spec.RestartApprovalMode = v1alpha1.RestartAutomatic
	s.VirtualMachineTemplate.Spec.Runtime = v1alpha1.VirtualMachineRuntime{VSphere: &v1alpha1.VSphereRuntime{
		ServerRef: v1alpha1.VSphereServerReference{Name: "vc-1"},
		Clone:     &v1alpha1.VSphereClone{Template: v1alpha1.VSphereCloneSource{TemplateRef: &v1alpha1.VSphereTemplateReference{Name: templateKey.Name}}},
	}}
}

// ubuntu is a VSphereTemplate of that release, of which nothing was observed yet.
func ubuntu(release string) *v1alpha1.VSphereTemplate {
	return &v1alpha1.VSphereTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: templateKey.Namespace, Name: templateKey.Name},
		Spec: v1alpha1.VSphereTemplateSpec{
			ServerRef: v1alpha1.VSphereServerReference{Name: "vc-1"}, Release: release,
			FailureDomains: []v1alpha1.VSphereFailureDomain{{Name: "a"}},
		},
	}
}

// observed writes down that the failure domain has that release, and whether that is the one that is wanted.
func (s *server) observed(t *v1alpha1.VSphereTemplate, release string, is metav1.ConditionStatus) {
	ready := v1alpha1.ConditionReady.Condition(is, v1alpha1.ReasonTemplateReady, t.Generation, "")
	t.Status.FailureDomains = []v1alpha1.VSphereFailureDomainStatus{{Name: "a", Release: release}}
	v1alpha1.SetCondition(&t.Status.FailureDomains[0].Conditions, ready, s.now)
	s.must(s.Status().Update(context.Background(), t))
}

// follow has the pool follow a template, which somebody may have to approve of each time.
func (m *model) follow() {
	pool := m.server.pool()
	following(&pool.Spec)
	if rapid.IntRange(0, 9).Draw(m.T, "Manual") == 0 {
		pool.Spec.VirtualMachineTemplate.Spec.RestartApprovalMode = v1alpha1.RestartManual
	}
	m.server.must(m.server.Update(m.ctx, pool))
	m.under = "1"
	m.server.must(m.server.Create(m.ctx, ubuntu("1")))
	m.observe(metav1.ConditionTrue)
}

// release has the template come one step further: another release is wanted, or it has the name, or that is told.
func (m *model) release() {
	if m.under == "" {
		return
	}
	switch rapid.SampledFrom([]string{"wanted", "swapped", "observed", "observed", "away"}).Draw(m.T, "template") {
	case "wanted":
		m.want()
	case "swapped":
		m.swap()
	case "observed":
		m.observe(metav1.ConditionTrue)
	case "away":
		m.observe(metav1.ConditionUnknown)
	}
	m.noteStale()
}

// released has the template come to another release.
func (m *model) released() {
	m.want()
	m.swap()
	m.observe(metav1.ConditionTrue)
}

// allRun has every member run.
func (m *model) allRun() {
	for _, vm := range m.staying() {
		m.run(&vm, v1alpha1.VirtualMachineRunning)
	}
}

// learnAll brings every cache up to date.
func (m *model) learnAll() {
	for _, p := range m.processes {
		p.told("")
	}
}

// want has somebody want a release.
func (m *model) want() {
	t := m.server.template()
	t.Spec.Release = rapid.SampledFrom([]string{"1", "2", "3"}).Draw(m.T, "release")
	t.Generation++
	m.server.must(m.server.Update(m.ctx, t))
}

// swap gives the release that is wanted the name.
func (m *model) swap() {
	if m.under != "" {
		m.under = m.server.template().Spec.Release
	}
}

// observe tells what has the name.
func (m *model) observe(is metav1.ConditionStatus) {
	if m.under == "" {
		return
	}
	t := m.server.template()
	if is == metav1.ConditionTrue && m.under != t.Spec.Release {
		is = metav1.ConditionFalse
	}
	m.server.observed(t, m.under, is)
}

// readyNow is the release that is ready, as whoever looks past every cache is told.
func (m *model) readyNow() string {
	if m.under == "" {
		return ""
	}
	return m.server.template().ReadyIn("a")
}

// noteStale notes which members are of another release than the one that is ready.
func (m *model) noteStale() {
	for _, vm := range m.staying() {
		if ready, from := m.readyNow(), vm.Status.Template; ready != "" && from != nil && from.Release != ready {
			m.stale[vm.UID] = true
		}
	}
}

// judgeReplaced tells whether a member that was deleted was of another release than the one that was ready, at some time in the pass, and
// judges the moment if nothing has changed since the pass began, so that it is known what it saw.
func (m *model) judgeReplaced(vm *v1alpha1.VirtualMachine) bool {
	v := &view{pool: m.server.pool()}
	if !m.stale[vm.UID] || !v.restartsAutomatically() || m.disturbed {
		return m.stale[vm.UID] && v.restartsAutomatically()
	}
	ready, staying := m.readyNow(), m.staying()
	if vm.Status.Template.Release == ready || ready == "" {
		m.fail("%s is of release %s and was replaced while release %q was ready", vm.Name, vm.Status.Template.Release, ready)
	}
	if len(staying) > v.desired() {
		m.fail("%s was replaced while there were too many, and is not made again", vm.Name)
	}
	out := max(0, v.desired()-len(staying))
	for i := range staying {
		o := member{VirtualMachine: &staying[i]}
		starts := o.Status.Template == nil || o.Status.Template.Release == ready
		if !o.available() && (starts || (member{VirtualMachine: vm}).available()) {
			out++
		}
	}
	if out >= v.maxUnavailable() {
		m.fail("%s was replaced while %d were unavailable", vm.Name, out)
	}
	generation := m.server.template().Generation
	if m.replaced[vm.Name] == generation {
		m.fail("%s was replaced twice for release %s", vm.Name, ready)
	}
	m.replaced[vm.Name] = generation
	return true
}

// others counts the members of another release than the one that is ready.
func (m *model) others() (count int) {
	for _, vm := range m.staying() {
		if m.under != "" && (vm.Status.Template == nil || vm.Status.Template.Release != m.under) {
			count++
		}
	}
	return count
}

// What TestModel has, of a pool that follows a template, whose releases come and go while members are replaced.
func TestModelOfATemplate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		m.follow()
		m.settle() // from here on members may be replaced
		t.Repeat(map[string]func(*rapid.T){
			"pass": func(t *rapid.T) { m.pass() }, "pass again": func(t *rapid.T) { m.pass() }, "pass once more": func(t *rapid.T) { m.pass() },
			"learn": func(t *rapid.T) { m.learn() }, "learn all": func(t *rapid.T) { m.learnAll() }, "scale": func(t *rapid.T) { m.scale() }, "mark": func(t *rapid.T) { m.mark() },
			"protect": func(t *rapid.T) { m.protect() }, "gone": func(t *rapid.T) { m.gone() }, "gone again": func(t *rapid.T) { m.gone() },
			"runs": func(t *rapid.T) { m.runs() }, "all run": func(t *rapid.T) { m.takes(); m.disksGoOn(); m.allRun() },
			"release": func(t *rapid.T) { m.release() }, "released": func(t *rapid.T) { m.released() },
			"template": func(t *rapid.T) { m.template() },
			"time":     func(t *rapid.T) { m.server.now = m.server.now.Add(20 * time.Second) },
		})
		m.settle()
	})
}
