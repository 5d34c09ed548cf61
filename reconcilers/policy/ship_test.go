package policy

import (
	"context"
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/policy/shipping"
)

const resetHint = "To reset them: kubectl sallyport policies reset "

// From the installation to an upgrade after an edit, and back.
func TestLifeOfAPolicy(t *testing.T) {
	f := newFixture(t)
	f.ships("1.0.0", toy("lib", "has:x", library), toy("guard", "needs:x"))
	f.settles()
	f.shows("guard", "Ready", "True CurrentRevision Revision 6e65656473 is active.")
	f.shows("guard", "Active", "True CurrentRevision Revision 6e65656473 is active.")
	f.shows("guard", "Compiled", "True Compiled The policy compiles.")
	f.shows("guard", "ReadsGranted", "True ReadsGranted The policy reads nothing from the cluster: spec.reads is empty.")
	f.shows("guard", "Shipped", "True Shipped Release 1.0.0 is applied.")
	f.shows("guard", "Edited", "False AsShipped All fields are as shipped.")
	f.shows("guard", "TestsPassed", "")
	f.shows("lib", "Active", "True CurrentRevision Policies that import this library use it.")
	f.shows("lib", "ReadsGranted", "")
	f.tells(
		"Normal Shipped RegoPolicy/guard: Release 1.0.0 is applied.",
		"Normal Activated RegoPolicy/guard: Revision 6e65656473 is active.",
		"Normal Shipped RegoPolicy/lib: Release 1.0.0 is applied.",
	)
	f.stores("guard", "needs:x")

	f.word("guard", "mine needs:x")
	f.patched("guard", `{"spec":{"mode":"Audit"}}`)
	f.settles()
	f.shows("guard", "Edited", "True FieldsEdited Edited fields: spec.mode, spec.modules[main.rego].source. "+resetHint+"guard")
	f.tells(
		"Normal FieldsEdited RegoPolicy/guard: Edited fields: spec.mode, spec.modules[main.rego].source.",
		"Normal Activated RegoPolicy/guard: Revision 6d696e6520 is active.",
	)
	f.stores("guard", "needs:x", "mine needs:x")

	f.word("guard", "BROKEN")
	f.settles()
	f.shows("guard", "Compiled", "False CompileFailed guard/main.rego:1:1: BROKEN")
	f.shows("guard", "Active", "True LastGoodRevision The last good revision 6d696e6520 is active instead of the current one. See condition Compiled.")
	f.shows("guard", "Ready", "False LastGoodRevision The last good revision 6d696e6520 is active instead of the current one. See condition Compiled.")
	f.tells("Warning CompileFailed RegoPolicy/guard: The last good revision 6d696e6520 is active instead of the current one. See condition Compiled. guard/main.rego:1:1: BROKEN")
	f.stores("guard", "needs:x", "mine needs:x")

	f.word("guard", "mine needs:x")
	f.settles()
	f.tells("Normal Repaired RegoPolicy/guard: Resolved: CompileFailed.")

	// The next release, by a leader that knows nothing.
	f.lead(f.Namespace)
	f.Release = "2.0.0"
	f.ships("2.0.0", toy("lib", "has:x has:y", library), toy("guard", "needs:x needs:y", func(p *v1alpha1.RegoPolicy) { p.Spec.TimeoutMilliseconds = 900 }))
	f.settles()
	f.is("guard", "mine needs:x")
	f.is("lib", "has:x has:y")
	if got := f.policy("guard").Spec; got.TimeoutMilliseconds != 900 || got.Mode != v1alpha1.ModeAudit {
		t.Errorf("it is %+v", got)
	}
	f.tells("Normal Shipped RegoPolicy/guard: Release 2.0.0 is applied.", "Normal Shipped RegoPolicy/lib: Release 2.0.0 is applied.")

	f.patched("guard", `{"metadata":{"annotations":{"sallyport.dev/release":"reset"}}}`)
	f.settles()
	f.is("guard", "needs:x needs:y")
	f.shows("guard", "Edited", "False AsShipped All fields are as shipped.")
	f.tells(
		"Normal Reset RegoPolicy/guard: All fields were reset to release 2.0.0.",
		"Normal AsShipped RegoPolicy/guard: All fields are as shipped again.",
		"Normal Activated RegoPolicy/guard: Revision 6e65656473 is active.",
	)
	if got := f.policy("guard").Annotations[shipping.ReleaseAnnotation]; got != "2.0.0" {
		t.Errorf("its release is %s", got)
	}
	f.lead(f.Namespace)
	f.Release = "2.0.0"
	f.settles()
	f.tells()
}

func TestDeletedIsPutBack(t *testing.T) {
	f := newFixture(t)
	f.ships("1.0.0", toy("guard", "a"))
	f.settles()
	f.told.take()
	old := f.policy("guard")
	f.Must(f.api.Delete(t.Context(), old))
	f.settles()
	f.is("guard", "a")
	f.tells("Normal PutBack RegoPolicy/guard: The policy was deleted but is shipped, so it was created again.", "Normal Shipped RegoPolicy/guard", "Normal Activated RegoPolicy/guard")
	f.stores("guard", "a", "a") // the old one's is left to the garbage collector
}

func TestOtherReleaseAndNone(t *testing.T) {
	f := newFixture(t)
	f.settles() // there is no ConfigMap
	f.ships("0.9.0", toy("guard", "old"))
	f.settles()
	f.is("guard", "")
	f.ships("1.0.0", toy("guard", "a"))
	f.settles()
	f.is("guard", "a")
	f.ships("1.1.0", toy("guard", "b"), toy("more", "b"))
	f.settles()
	f.is("guard", "a")
	f.is("more", "")
	f.Must(f.api.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: f.ConfigMap}}))
	f.settles()
	f.is("guard", "a")
	f.shows("guard", "Shipped", "True Shipped Release 1.0.0 is applied.")
}

func TestNotShippedAnyMore(t *testing.T) {
	f := newFixture(t)
	f.ships("1.0.0", toy("untouched", "a"), toy("edited", "a"), toy("shortened", "a", func(p *v1alpha1.RegoPolicy) {
		p.Spec.Match.ExcludeUsers = []string{"ann", "bob"}
	}), toy("lib", "has:x", library))
	f.settles()
	f.word("edited", "mine")
	f.patched("shortened", `{"spec":{"match":{"excludeUsers":["ann"]}}}`)
	copied := f.policy("untouched")
	copied.ObjectMeta = metav1.ObjectMeta{Name: "copied", Labels: copied.Labels, Annotations: copied.Annotations}
	f.Must(f.api.Create(t.Context(), copied))
	f.settles()
	f.told.take()
	f.ships("1.0.0")
	f.settles()
	f.is("untouched", "")
	f.is("lib", "")
	f.is("edited", "mine")
	f.is("shortened", "a")
	f.is("copied", "a")
	if copied = f.policy("copied"); copied.Labels[shipping.Label] == "" {
		t.Error("the copy was taken for a shipped one")
	}
	f.tells(
		"Normal Kept RegoPolicy/edited: Release 1.0.0 does not ship this policy. It was edited",
		"Normal Kept RegoPolicy/shortened",
		"Normal Retired RegoPolicy/lib: Release 1.0.0 does not ship this policy, and it was not edited.", "Normal Retired RegoPolicy/untouched",
	)
	kept := f.policy("edited")
	if len(kept.Labels) > 0 || len(kept.Annotations) > 0 || shipping.Shipped(kept) {
		t.Errorf("it is still ours: %+v", kept.ObjectMeta)
	}
	f.shows("edited", "Shipped", "")
	f.shows("edited", "Edited", "")
	f.shows("edited", "Active", "True CurrentRevision Revision 6d696e65 is active.")

	f.ships("1.0.0", toy("edited", "a"))
	f.settles()
	f.is("edited", "mine")
	f.shows("edited", "Shipped", "False NameTaken Release 1.0.0 also ships a RegoPolicy edited, which is not applied because this one was not created by Sallyport. "+
		"Rename this one, or replace it with the shipped one: kubectl sallyport policies reset edited")
}

// A policy that a newer definition lets have what this version cannot take apart stays, and is told of.
func TestNotShippedAnyMoreAndNotUnderstood(t *testing.T) {
	f := newFixture(t)
	f.ships("1.0.0", toy("guard", "a"))
	f.settles()
	f.ships("1.0.0")
	f.Live = interceptor.NewClient(f.api, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, into, opts...)
			if all, ok := into.(*unstructured.UnstructuredList); ok {
				modules, _, _ := unstructured.NestedSlice(all.Items[0].Object, "spec", "modules")
				f.Must(unstructured.SetNestedSlice(all.Items[0].Object, append(modules, modules[0]), "spec", "modules"))
			}
			return err
		},
	})
	if err := f.pass(); err == nil || !strings.HasPrefix(err.Error(), "retiring RegoPolicy guard: ") {
		t.Errorf("got %v", err)
	}
	f.is("guard", "a")
}

func TestNameTaken(t *testing.T) {
	f := newFixture(t)
	theirs := toy("guard", "theirs")
	f.Must(f.api.Create(t.Context(), theirs.DeepCopy()))
	f.ships("1.0.0", toy("guard", "a"), toy("other", "a"))
	f.settles()
	f.is("guard", "theirs")
	f.is("other", "a")
	f.shows("guard", "Shipped", "False NameTaken Release 1.0.0 also ships a RegoPolicy guard, which is not applied because this one was not created by Sallyport. "+
		"Rename this one, or replace it with the shipped one: kubectl sallyport policies reset guard")
	f.shows("guard", "Edited", "")
	f.tells(
		"Warning NameTaken ConfigMap/sallyport-policies: RegoPolicy guard: Release 1.0.0 also ships a RegoPolicy guard",
		"Warning NameTaken RegoPolicy/guard: Release", "Normal Activated RegoPolicy/guard",
		"Normal Shipped RegoPolicy/other", "Normal Activated RegoPolicy/other",
	)
	f.lead(f.Namespace)
	f.settles()
	f.tells()

	// The label hands it over: what differs is theirs still.
	f.patched("guard", `{"metadata":{"labels":{"sallyport.dev/shipped":"true"}}}`)
	f.settles()
	f.is("guard", "theirs")
	f.shows("guard", "Shipped", "True Shipped Release 1.0.0 is applied.")
	f.shows("guard", "Edited", "True FieldsEdited Edited fields: spec.modules[main.rego].source. "+resetHint+"guard")
}

func TestEntryThatCannotBeRead(t *testing.T) {
	f := newFixture(t)
	f.ships("1.0.0", toy("guard", "a"), toy("other", "a"))
	f.settles()
	f.told.take()
	const text = "{apiVersion: sallyport.dev/v1alpha1, kind: RegoPolicy, metadata: {name: other}, spec: {package: toy.other, match: " +
		"{resources: [{apiGroups: [''], apiVersions: ['*'], resources: [pods], operations: [CREATE]}]}, modules: [{name: main.rego, source: b}]}}"
	f.shipsTexts("1.0.0", map[string]string{"guard.yaml": "kind: RegoPolicy\nspec:\n\tmode: x", "other.yaml": text, "odd": "x"})
	f.settles()
	f.is("guard", "a")
	f.is("other", "b")
	f.shows("guard", "Shipped", "False Unreadable ConfigMap NS/sallyport-policies, key guard.yaml: "+
		"error converting YAML to JSON: yaml: line 3: found character that cannot start any token")
	f.tells(
		"Warning Unreadable ConfigMap/sallyport-policies: RegoPolicy guard: ConfigMap NS/sallyport-policies, key guard.yaml: error converting",
		"Warning Unreadable ConfigMap/sallyport-policies: RegoPolicy odd: ConfigMap NS/sallyport-policies, key odd: a key must end in .yaml",
		"Warning Unreadable RegoPolicy/guard: ConfigMap", "Normal Activated RegoPolicy/other",
	)
}

// What the API server refuses.
func TestApplyFailed(t *testing.T) {
	f := newFixture(t)
	f.ships("1.0.0", toy("guard", "a"), toy("other", "a"))
	f.settles()
	f.ships("1.0.0", toy("guard", "b", func(p *v1alpha1.RegoPolicy) { p.Spec.Mode = "Shout" }), toy("other", "b"))
	for range 2 {
		if err := f.pass(); err == nil {
			t.Error("it is not tried again")
		}
	}
	f.is("guard", "a")
	f.is("other", "b")
	shown := v1alpha1.ConditionShipped.In(f.policy("guard").Status.Conditions)
	want := `Release 1.0.0: applying RegoPolicy guard: RegoPolicy.sallyport.dev "guard" is invalid: `
	if shown.Reason != "ApplyFailed" || !strings.HasPrefix(shown.Message, want) || !strings.Contains(shown.Message, `spec.mode: Unsupported value: "Shout"`) {
		t.Errorf("it shows %+v", shown)
	}
	f.ships("1.0.0", toy("guard", "b"), toy("other", "b"))
	f.settles()
	f.is("guard", "b")
	f.shows("guard", "Shipped", "True Shipped Release 1.0.0 is applied.")
}

// Who was slower than somebody else looks again soon, and shows no trouble.
func TestApplyMeetsAnother(t *testing.T) {
	f := newFixture(t)
	f.ships("1.0.0", toy("guard", "a"))
	f.settles()
	f.told.take()
	f.ships("1.0.0", toy("guard", "b"))
	f.crash = func(bool) error {
		return apierrors.NewConflict(schema.GroupResource{Group: v1alpha1.GroupName, Resource: "regopolicies"}, "guard", errors.New("somebody was faster"))
	}
	if result, err := f.ship(t.Context()); err != nil || result.RequeueAfter != firstRetry {
		t.Errorf("got %+v, error %v", result, err)
	}
	f.crash = nil
	if result, err := f.ship(t.Context()); err != nil || result.RequeueAfter != 0 {
		t.Errorf("got %+v, error %v", result, err)
	}
	f.settles()
	f.is("guard", "b")
	f.tells("Normal Activated RegoPolicy/guard")
}

func TestChecked(t *testing.T) {
	f := newFixture(t)
	another := toy("another", "has:z", library)
	f.ships("1.0.0", another, toy("lib", "has:x", library), toy("guard", "needs:x"), toy("other", "a"))
	f.settles()
	mine := toy("mine", "needs:x")
	f.Must(f.api.Create(t.Context(), &mine))
	f.settles()
	f.told.take()

	// A policy that does not compile stays as it was, and the others go on.
	f.ships("1.0.0", another, toy("lib", "has:x", library), toy("guard", "BROKEN"), toy("other", "b"), toy("new", "BROKEN"))
	f.settles()
	f.is("guard", "needs:x")
	f.is("other", "b")
	f.is("new", "")
	f.shows("guard", "Shipped", "False CheckFailed Release 1.0.0 is not applied: guard/main.rego:1:1: BROKEN")
	f.shows("guard", "Edited", "False AsShipped All fields are as shipped.")
	f.tells(
		"Warning CheckFailed ConfigMap/sallyport-policies: RegoPolicy guard: Release 1.0.0 is not applied: guard/main.rego:1:1: BROKEN",
		"Warning CheckFailed ConfigMap/sallyport-policies: RegoPolicy new: Release 1.0.0 is not applied: new/main.rego:1:1: BROKEN",
		"Warning CheckFailed RegoPolicy/guard: Release", "Normal Activated RegoPolicy/other",
	)

	// A library that would break somebody's policy stays, and so does what needs the new one. Other policies go on.
	f.ships("1.0.0", another, toy("lib", "has:y", library), toy("guard", "needs:y"), toy("other", "c"))
	f.settles()
	f.is("lib", "has:x")
	f.is("guard", "needs:x")
	f.is("other", "c")
	f.shows("lib", "Shipped", "False CheckFailed Release 1.0.0 is not applied: RegoPolicy mine would break: mine/main.rego:1:1: needs:x is not there")
	f.shows("guard", "Shipped", "False CheckFailed Release 1.0.0 is not applied: guard/main.rego:1:1: needs:y is not there")
	f.told.take()

	// The policy is repaired, and all of it is tried again.
	f.word("mine", "needs:y BROKEN")
	f.settles()
	f.is("lib", "has:y")
	f.is("guard", "needs:y")

	// A library that somebody needs does not go. Another one does.
	f.word("mine", "needs:y")
	f.ships("1.0.0", toy("guard", "a"), toy("other", "c"))
	f.settles()
	f.is("another", "")
	f.is("lib", "has:y")
	f.is("guard", "a")
	f.shows("lib", "Shipped", "False CheckFailed Release 1.0.0 does not ship this policy, but it stays: without it, RegoPolicy mine would break: mine/main.rego:1:1: needs:y is not there")
	f.Must(f.api.Delete(t.Context(), f.policy("mine")))
	f.settles()
	f.is("lib", "")
}

// A merge of the release with an edit is checked, not the release.
func TestEditThatDoesNotGoWithTheRelease(t *testing.T) {
	f := newFixture(t)
	two := func(a, b string) v1alpha1.RegoPolicy {
		return toy("guard", a, func(p *v1alpha1.RegoPolicy) {
			p.Spec.Modules = append(p.Spec.Modules, v1alpha1.PolicyModule{Name: "more.rego", Source: b})
		})
	}
	f.ships("1.0.0", toy("lib", "has:x", library), two("needs:x", "needs:x"))
	f.settles()
	f.patched("guard", `{"spec":{"modules":[{"name":"main.rego","source":"needs:x mine"},{"name":"more.rego","source":"needs:x"}]}}`)
	f.ships("1.0.0", toy("lib", "has:y", library), two("needs:y", "needs:y"))
	f.settles()
	f.is("guard", "needs:x mine\nneeds:x")
	f.is("lib", "has:x")
	const because = "guard/main.rego:1:1: needs:x is not there\nUsers have edited spec.modules[main.rego].source. " +
		"Adapt the edit to the release, or reset it: kubectl sallyport policies reset guard"
	f.shows("guard", "Shipped", "False CheckFailed Release 1.0.0 is not applied: "+because)
	f.shows("lib", "Shipped", "False CheckFailed Release 1.0.0 is not applied: RegoPolicy guard would break: "+because)
	f.shows("guard", "Edited", "True FieldsEdited Edited fields: spec.modules[main.rego].source. "+resetHint+"guard")
	f.word("lib", "has:x has:y")
	f.settles()
	f.is("guard", "needs:x mine\nneeds:y")
	f.shows("lib", "Edited", "True FieldsEdited Edited fields: spec.modules[main.rego].source. "+resetHint+"lib")
}
