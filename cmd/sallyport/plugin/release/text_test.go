package release

import (
	"testing"

	"sallyport.dev/sallyport/api/v1alpha1"
)

func TestReleaseCounts(t *testing.T) {
	j := &releasing{kinds: []releasable{
		{GroupVersionResource: v1alpha1.GroupVersion.WithResource("regopolicies"), singular: "regopolicy"},
		{GroupVersionResource: v1alpha1.GroupVersion.WithResource("virtualmachineoperations"), singular: "virtualmachineoperation", held: 1},
		{GroupVersionResource: v1alpha1.GroupVersion.WithResource("virtualmachines"), singular: "virtualmachine", held: 2},
	}}
	held := j.counted(func(k *releasable) int { return k.held }, "off ")
	if want := "off 1 virtualmachineoperation, 2 virtualmachines"; held != want {
		t.Errorf("it says %q, not %q", held, want)
	}
	if none := j.counted(func(*releasable) int { return 0 }, "off "); none != "" {
		t.Errorf("of none it says %q", none)
	}
}
