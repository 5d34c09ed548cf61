package operate

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sallyport.dev/sallyport/api/v1alpha1"
)

func targetOf(name, uid string) v1alpha1.ScaleDownTarget {
	return v1alpha1.ScaleDownTarget{Name: name, UID: types.UID(uid)}
}

// membersOf returns members ci-0, ci-1 and so on, with UIDs u-0, u-1 and so on.
func membersOf(n int) (members []v1alpha1.VirtualMachine) {
	for i := range n {
		members = append(members, v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("ci-", i), UID: types.UID(fmt.Sprint("u-", i))}})
	}
	return members
}

// What one write does to a pool of five with the members ci-0 to ci-4, of which ci-3 is named to go and ci-4 is being deleted, and
// with an entry of a member that is gone.
func TestShrink(t *testing.T) {
	pool := &v1alpha1.VirtualMachinePool{ObjectMeta: metav1.ObjectMeta{Name: "ci"}}
	pool.Spec.Replicas = new(int32(5))
	pool.Spec.ScaleDownTargets = []v1alpha1.ScaleDownTarget{targetOf("ci-3", "u-3"), targetOf("ci-2", "u-gone")}
	members := membersOf(5)
	members[4].DeletionTimestamp = new(metav1.NewTime(time.Now()))
	named := targetOf("ci-3", "u-3")
	for name, tc := range map[string]struct {
		vms       string
		told, err string
		replicas  int32
		targets   []v1alpha1.ScaleDownTarget
	}{
		"one":                    {"ci-0", "scaled from 5 to 4, removing ci-0", "", 4, []v1alpha1.ScaleDownTarget{named, targetOf("ci-0", "u-0")}},
		"by kind":                {"svm/ci-0", "scaled from 5 to 4, removing ci-0", "", 4, []v1alpha1.ScaleDownTarget{named, targetOf("ci-0", "u-0")}},
		"two":                    {"ci-2 ci-1@u-1", "scaled from 5 to 3, removing ci-2, ci-1", "", 3, []v1alpha1.ScaleDownTarget{named, targetOf("ci-2", "u-2"), targetOf("ci-1", "u-1")}},
		"twice":                  {"ci-0 ci-0@u-0 ci-0", "scaled from 5 to 4, removing ci-0", "", 4, []v1alpha1.ScaleDownTarget{named, targetOf("ci-0", "u-0")}},
		"named before":           {"ci-3", "unchanged; already in spec.scaleDownTargets: ci-3", "", 5, []v1alpha1.ScaleDownTarget{named}},
		"named before, and one":  {"ci-3 ci-0 ci-3", "scaled from 5 to 4, removing ci-0; already in spec.scaleDownTargets: ci-3", "", 4, []v1alpha1.ScaleDownTarget{named, targetOf("ci-0", "u-0")}},
		"named before, and gone": {"ci-2@u-gone", "unchanged; already in spec.scaleDownTargets: ci-2", "", 5, []v1alpha1.ScaleDownTarget{named}},
		"no member":              {"ci-9", "", "VirtualMachinePool ci: ci-9 is not a member; nothing was changed; members that can be removed: ci-0, ci-1, ci-2", 0, nil},
		"another of the name":    {"ci-0@u-9", "", "ci-0 has UID u-0, not u-9", 0, nil},
		"being deleted":          {"ci-4", "", "ci-4 is already being deleted", 0, nil},
		"one of them wrong":      {"ci-0 ci-9 ci-4", "", "ci-9 is not a member; ci-4 is already being deleted; nothing was changed; members that can be removed: ci-1, ci-2", 0, nil},
		"no UID behind @":        {"ci-0@", "", `invalid --vm "ci-0@": must be NAME or NAME@UID`, 0, nil},
		"another kind":           {"svmop/ci-0", "", "svmop/ci-0 is not a VirtualMachine", 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			wanted, err := wantedOf(strings.Fields(tc.vms))
			var s shrink
			if err == nil {
				s, err = shrinkOf(pool, members, wanted)
			}
			switch {
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Errorf("%v does not say %q", err, tc.err)
			case tc.err != "":
				return
			case err != nil || s.describe(5) != tc.told || s.replicas != tc.replicas:
				t.Errorf("%q with %d replicas, %v; want %q with %d", s.describe(5), s.replicas, err, tc.told, tc.replicas)
			}
			if diff := cmp.Diff(tc.targets, s.targets); diff != "" {
				t.Errorf("targets (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEligibleIsForReading(t *testing.T) {
	members := membersOf(12)
	for named, want := range map[int]string{
		0:  "ci-0, ci-1, ci-2, ci-3, ci-4, ci-5, ci-6, ci-7, ci-8, ci-9 and 2 more",
		2:  "ci-2, ci-3, ci-4, ci-5, ci-6, ci-7, ci-8, ci-9, ci-10, ci-11",
		12: "none",
	} {
		var targets []v1alpha1.ScaleDownTarget
		for _, m := range members[:named] {
			targets = append(targets, targetOf(m.Name, string(m.UID)))
		}
		if got := eligible(members, targets); got != want {
			t.Errorf("with %d named: %q, want %q", named, got, want)
		}
	}
}
