package registration

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/fairqueue"
)

// written is an entry as this process wrote it last.
type written struct {
	admissionregistrationv1.ValidatingWebhook
	fairqueue.Contention
}

// share keeps what another client has added to the namespaceSelector of entries since this process wrote them: the admissions enforcer of
// AKS adds expressions to all webhooks, and adds them again whenever they are removed (kyverno#6539); Autopilot of GKE adds some to each write. They exclude namespaces and nothing
// else, and the policy's condition lists them. Until this process has written an entry, an addition cannot be distinguished from what an
// earlier version of the policy needed. All other changes are undone, but while that is contended, the other client's entry is left.
func (reg *pass) share(s *side, all []*entry) (shared []*entry) {
	for _, e := range all {
		e.wanted = e.DeepCopy()
		w, have := reg.written[s.kind()+e.Name], s.have[e.Name]
		if w == nil || !equality.Semantic.DeepEqual(w.ValidatingWebhook, e.ValidatingWebhook) {
			shared = append(shared, e)
			continue
		}
		if have != nil {
			reg.report(e.policy).narrowed = append(reg.report(e.policy).narrowed, keep(&e.NamespaceSelector, have.NamespaceSelector)...)
		}
		if !e.same(have) && w.Lasts(reg.Now()) {
			reg.leave(s, e)
			e = have
		}
		if e != nil {
			shared = append(shared, e)
		}
	}
	return shared
}

// leave reports that an entry is left to another client for some time.
func (reg *pass) leave(s *side, e *entry) {
	reg.contended = true
	reg.report(e.policy).failed = append(reg.report(e.policy).failed, fmt.Sprintf(
		"another client changes webhook %s each time Sallyport restores it; Sallyport tries again within a minute. To see which client: %s", e.Name,
		commands.Line("kubectl", "get", strings.ToLower(s.kind()), reg.Configuration, "-o", "yaml", "--show-managed-fields")))
}

// keep replaces a selector by one that has the same requirements and more, and returns these as text.
func keep(want **metav1.LabelSelector, have *metav1.LabelSelector) (added []string) {
	wanted, all := requirementsOf(*want), requirementsOf(have)
	has := func(in []metav1.LabelSelectorRequirement, r metav1.LabelSelectorRequirement) bool {
		return slices.ContainsFunc(in, func(other metav1.LabelSelectorRequirement) bool { return equality.Semantic.DeepEqual(r, other) })
	}
	for _, r := range wanted {
		if !has(all, r) {
			return nil
		}
	}
	for _, r := range all {
		if !has(wanted, r) {
			added = append(added, metav1.FormatLabelSelector(selectorOf([]metav1.LabelSelectorRequirement{r})))
		}
	}
	*want = have
	return added
}

// remember records what this process has written, or found as it would have written it.
func (r *Reconciler) remember(s *side, entries map[string]*entry) {
	for name, e := range entries {
		if e.wanted == nil {
			continue
		}
		key := s.kind() + name
		w := r.written[key]
		if w == nil || !equality.Semantic.DeepEqual(w.ValidatingWebhook, *e.wanted) {
			r.written[key] = &written{ValidatingWebhook: *e.wanted}
		} else if !e.same(s.have[name]) {
			w.Undone(r.Now())
		}
	}
}
