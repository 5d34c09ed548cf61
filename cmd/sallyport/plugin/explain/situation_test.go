package explain

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/catalog/keeper"
)

// A policy that was deleted and created again has revisions of the earlier one. Replicas do not use these, so explain does not either.
func TestLastGoodRevisionIsOfThePolicy(t *testing.T) {
	policy := func(uid types.UID) v1alpha1.RegoPolicy {
		return v1alpha1.RegoPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "p", UID: uid},
			Spec:       v1alpha1.RegoPolicySpec{Modules: []v1alpha1.PolicyModule{{Name: "p.rego", Source: "package p"}}},
		}
	}
	revision := func(uid types.UID, number int64) *appsv1.ControllerRevision {
		raw, err := catalog.Revision{Policy: policy(uid)}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		return &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Namespace: "sallyport-system", Name: "p-" + string(uid), Labels: map[string]string{keeper.PolicyLabel: "p"}},
			Data:       runtime.RawExtension{Raw: raw}, Revision: number,
		}
	}
	objects := fake.NewClientBuilder().WithScheme(cli.Scheme).WithObjects(revision("now", 1), revision("earlier", 2)).Build()
	s := &situation{Cluster: &cli.Cluster{WithWatch: objects}, ctx: t.Context(), home: "sallyport-system", policies: []v1alpha1.RegoPolicy{policy("now")}}
	if good := s.lastGood(); len(good) != 1 || good["p"].Policy.UID != "now" {
		t.Errorf("got %v, want the revision of the present policy", good)
	}
}
