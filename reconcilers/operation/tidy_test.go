package operation

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// A finished operation is kept from its end on, and from its creation on if nobody wrote when it ended.
func TestHowLongOperationsAreKept(t *testing.T) {
	created := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	ended := metav1.NewTime(created.Add(time.Hour))
	for name, tc := range map[string]struct {
		ended *metav1.Time
		ttl   *int32
		want  time.Time
	}{
		"from its end":             {&ended, new(int32(60)), ended.Add(time.Minute)},
		"at its end":               {&ended, new(int32(0)), ended.Time},
		"as long as usual":         {&ended, nil, ended.Add(v1alpha1.DefaultTTLAfterFinished)},
		"an end that is not known": {nil, new(int32(60)), created.Add(time.Minute)},
	} {
		o := &v1alpha1.VirtualMachineOperation{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: created}}
		o.Status.CompletionTime, o.Spec.TTLSecondsAfterFinished = tc.ended, tc.ttl
		if got := expiry(o); !got.Equal(tc.want) {
			t.Errorf("%s: kept until %s, want %s", name, got, tc.want)
		}
	}
}
