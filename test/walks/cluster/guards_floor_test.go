package cluster

import (
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// fallen leaves nothing of the guards but the floor: no replica runs, and what nobody judges passes.
func (s *guardSite) fallen() {
	s.Must(s.Sallyport.Upgrade(s.Context(), "--set", "webhook.failurePolicy=Ignore", "--set", "floor.enabled=true"))
	s.Must(s.Sallyport.Stop())
	s.Must(s.Sallyport.Resume(s.Context(), s.Options))
	s.registered(admissionregistrationv1.Ignore)
	s.Must(s.Sallyport.Stop())
	t := s.probe()
	for what, try := range map[string]func() (string, bool){
		deletionDenied: t.deletes, labelRemoved: t.unlabels, belowMinimum: t.shrinks,
	} {
		s.Until("the floor refuses with "+what, func() (string, bool) {
			said, ok := try()
			return said, !ok && strings.Contains(said, "["+what+"] ")
		})
	}
	t.release()
	s.spaces.give(t.space)
}

// probe is something guarded, and a few ways to try on it that leave nothing behind.
func (s *guardSite) probe() *trial {
	s.Helper()
	t := &trial{guardSite: s, guarded: true, space: s.namespace()}
	t.two()
	t.kept()
	return t
}

func (t *trial) deletes() (string, bool) {
	return t.kubectl("delete configmap kept --dry-run=server")
}

func (t *trial) unlabels() (string, bool) {
	return t.kubectl("label configmap kept --dry-run=server " + v1alpha1.LabelDeletionProtection + "-")
}

func (t *trial) shrinks() (string, bool) {
	return t.kubectl("patch deployment web --dry-run=server --type=merge -p", one)
}

// followed: the floor does as the RegoPolicies say, whoever edits them, and errs nowhere.
func (s *guardSite) followed() {
	t := s.probe()
	n := t.get(namespaces, t.space)
	t.patch(n, `{"metadata":{"labels":{"stage":"test"}}}`)
	for _, edit := range []struct{ what, policy, spec string }{
		{"the mode", protection, `{"mode":"Audit"}`},
		{"the mode", scaling, `{"mode":"Warn"}`},
		{"the mode of a namespace", protection, `{"namespaceModes":[{"mode":"Enforce","namespaceSelector":{"matchLabels":{"stage":"other"}}},` +
			`{"mode":"Audit","namespaceSelector":{"matchExpressions":[{"key":"stage","operator":"In","values":["test"]},{"key":"no","operator":"DoesNotExist"}]}}]}`},
		{"the labels of namespaces", scaling, `{"match":{"namespaceSelector":{"matchExpressions":[{"key":"stage","operator":"NotIn","values":["test"]}]}}}`},
		{"a namespace that is left out", protection, `{"match":{"excludeNamespaces":["` + t.space + `"]}}`},
		{"a user who is left out", scaling, `{"match":{"excludeUsers":["` + member + `"]}}`},
		{"a group that is left out", protection, `{"match":{"excludeGroups":["` + team + `"]}}`},
		{"a user who is exempt", scaling, `{"parameters":{"exempt":{"users":["` + member + `"],"groups":[]}}}`},
		{"a group that is exempt", protection, `{"parameters":{"exempt":[{"resources":["configmaps"],"groups":["` + team + `"]}]}}`},
	} {
		try := t.deletes
		if edit.policy == scaling {
			try = t.shrinks
		}
		before := s.policy(edit.policy)
		s.edit(edit.policy, `{"spec":`+edit.spec+`}`)
		s.Until(edit.what+" of "+edit.policy+" counts", try)
		after := s.policy(edit.policy)
		back := client.MergeFrom(after.DeepCopy())
		after.Spec = before.Spec
		s.Must(s.Client.Patch(s.Context(), after, back))
		s.Until("it does not any more", func() (string, bool) { said, ok := try(); return said, !ok })
	}
	t.patch(n, `{"metadata":{"labels":{"stage":null}}}`)
	t.release()
	s.spaces.give(t.space)
	s.sound()
}

func (s *guardSite) policy(name string) *v1alpha1.RegoPolicy {
	s.Helper()
	p := &v1alpha1.RegoPolicy{}
	s.Must(s.Client.Get(s.Context(), client.ObjectKey{Name: name}, p))
	return p
}

func (s *guardSite) edit(name, merge string) {
	s.Helper()
	var err error
	s.Until("there is time to try policy "+name, func() (string, bool) {
		err = s.Client.Patch(s.Context(), s.policy(name), client.RawPatch(types.MergePatchType, []byte(merge)))
		return fmt.Sprint(err), err == nil || !strings.Contains(err.Error(), "[policies-self/LimitExceeded]")
	})
	s.Must(err)
}

// sound: the API server has found nothing wrong with the expressions.
func (s *guardSite) sound() {
	list := &admissionregistrationv1.ValidatingAdmissionPolicyList{}
	s.Must(s.Client.List(s.Context(), list, client.MatchingLabels{"app.kubernetes.io/part-of": "sallyport"}))
	if len(list.Items) != 5 { // with the two that are always there
		s.Errorf("there are %d ValidatingAdmissionPolicies", len(list.Items))
	}
	for i := range list.Items {
		p := &list.Items[i]
		s.Until(p.Name+" is checked", func() (string, bool) {
			s.Must(s.Client.Get(s.Context(), client.ObjectKeyFromObject(p), p))
			return p.Name, p.Status.ObservedGeneration == p.Generation && p.Status.TypeChecking != nil
		})
		for _, w := range p.Status.TypeChecking.ExpressionWarnings {
			s.Errorf("%s: %s: %s", p.Name, w.FieldRef, w.Warning)
		}
	}
}

// restored has a replica judge again, beside the floor.
func (s *guardSite) restored() {
	s.Must(s.Sallyport.Resume(s.Context(), s.Options))
	s.Must(s.Sallyport.Upgrade(s.Context(), "--set", "floor.enabled=false"))
	list := &admissionregistrationv1.ValidatingAdmissionPolicyList{}
	s.Must(s.Client.List(s.Context(), list))
	if len(list.Items) != 2 { // those of the authors of overrides and of subresources
		s.Errorf("after floor.enabled=false there are %d ValidatingAdmissionPolicies", len(list.Items))
	}
}
