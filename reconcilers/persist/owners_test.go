package persist

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"sallyport.dev/sallyport/api/v1alpha1"
)

func TestDropLostOwners(t *testing.T) {
	owner := func(version, kind, name, uid string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: types.UID(uid), Controller: new(kind == "VirtualMachinePool")}
	}
	ours := v1alpha1.GroupVersion.String()
	there := owner(ours, "VirtualMachine", "web", "1")
	for name, tc := range map[string]struct {
		owners, want []metav1.OwnerReference
	}{
		"none":                       {},
		"one that is there":          {owners: []metav1.OwnerReference{there}, want: []metav1.OwnerReference{there}},
		"an earlier one of the name": {owners: []metav1.OwnerReference{owner(ours, "VirtualMachine", "web", "0")}},
		"a pool that is gone, and one that is there": {
			owners: []metav1.OwnerReference{owner(ours, "VirtualMachinePool", "ci", "2"), there}, want: []metav1.OwnerReference{there},
		},
		"a kind of others": {
			owners: []metav1.OwnerReference{owner("v1", "ConfigMap", "c", "3")}, want: []metav1.OwnerReference{owner("v1", "ConfigMap", "c", "3")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			if err := v1alpha1.AddToScheme(scheme); err != nil {
				t.Fatal(err)
			}
			d := &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "data", OwnerReferences: tc.owners}}
			vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "web", UID: "1"}}
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(d, vm).Build()
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(d), d); err != nil {
				t.Fatal(err)
			}
			stale := d.DeepCopy()
			did, err := DropLostOwners(t.Context(), c, c, d)
			if err != nil || did != (len(tc.want) != len(tc.owners)) {
				t.Errorf("did %t, %v", did, err)
			}
			got := &v1alpha1.VirtualDisk{}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(d), got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got.OwnerReferences); diff != "" {
				t.Error(diff)
			}
			// One that was changed meanwhile, as by the garbage collector, is looked at again.
			if _, err := DropLostOwners(t.Context(), c, c, stale); did && !apierrors.IsConflict(err) {
				t.Errorf("a stale object ends with %v", err)
			}
		})
	}
}
