package manager

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/reconcilers/policy/shipping"
)

// Helm's --force-replace and Argo's Replace delete the ConfigMap with the shipped policies before they create it again.
func TestPolicyReadsSurviveAConfigMapThatIsReplaced(t *testing.T) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "sallyport-system", Name: "policies", Annotations: map[string]string{shipping.ReadsAnnotation: "nodes=mine"},
	}}
	c := fake.NewFakeClient(cm)
	changes, grants := 0, 0
	p := &policyReads{
		reader: c, configMap: client.ObjectKeyFromObject(cm), changed: func() { changes++ }, granted: func(context.Context) { grants++ },
	}
	look := func() {
		t.Helper()
		if _, err := p.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	look()
	if !p.Allow("mine", "", "nodes") {
		t.Fatal("the list is not read")
	}
	if err := c.Delete(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	look()
	if !p.Allow("mine", "", "nodes") || changes != 1 {
		t.Errorf("without its ConfigMap, the list is lost, after %d changes", changes)
	}
	replaced := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: cm.Namespace, Name: cm.Name, Annotations: map[string]string{shipping.ReadsAnnotation: "pods=mine"},
	}}
	if err := c.Create(t.Context(), replaced); err != nil {
		t.Fatal(err)
	}
	look()
	if p.Allow("mine", "", "nodes") || !p.Allow("mine", "", "pods") {
		t.Error("the new list is not followed")
	}
	if grants != 1 {
		t.Errorf("the audits were told %d times that the list has changed", grants)
	}
}

func TestPolicyReadsWithoutAConfigMap(t *testing.T) {
	p := &policyReads{reader: fake.NewFakeClient(), configMap: client.ObjectKey{Namespace: "a", Name: "b"}, changed: func() {}}
	if _, known := p.allow("mine", "", "nodes"); known {
		t.Error("a list is known that was never looked for")
	}
	if _, err := p.Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
	if allowed, known := p.allow("mine", "", "nodes"); allowed || !known {
		t.Errorf("allowed %t, known %t", allowed, known)
	}
}
