package operation

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// Only what the runtime said it cannot do is without hope, and an attempt has failed before only if it was sent.
func TestWhatConditionsSay(t *testing.T) {
	sent := func(status metav1.ConditionStatus, reason v1alpha1.ConditionReason) metav1.Condition {
		return metav1.Condition{Type: string(v1alpha1.ConditionSignalSent), Status: status, Reason: string(reason)}
	}
	completed := func(reason v1alpha1.ConditionReason) metav1.Condition {
		return metav1.Condition{Type: string(v1alpha1.ConditionCompleted), Status: metav1.ConditionFalse, Reason: string(reason)}
	}
	for name, tc := range map[string]struct {
		conditions       []metav1.Condition
		hopeless, failed bool
	}{
		"nothing":              {nil, false, false},
		"sent":                 {[]metav1.Condition{sent(metav1.ConditionTrue, v1alpha1.ReasonSent)}, false, false},
		"the runtime cannot":   {[]metav1.Condition{sent(metav1.ConditionFalse, v1alpha1.ReasonRuntimeFailed)}, true, false},
		"sent, and failed":     {[]metav1.Condition{sent(metav1.ConditionTrue, v1alpha1.ReasonSent), completed(v1alpha1.ReasonAttemptFailed)}, false, true},
		"sent, and goes on":    {[]metav1.Condition{sent(metav1.ConditionTrue, v1alpha1.ReasonSent), completed(v1alpha1.ReasonInProgress)}, false, false},
		"failed, being sent":   {[]metav1.Condition{sent(metav1.ConditionUnknown, v1alpha1.ReasonSending), completed(v1alpha1.ReasonAttemptFailed)}, false, false},
		"failed, nothing sent": {[]metav1.Condition{completed(v1alpha1.ReasonAttemptFailed)}, false, false},
	} {
		o := &v1alpha1.VirtualMachineOperation{Status: v1alpha1.VirtualMachineOperationStatus{Conditions: tc.conditions}}
		if hopeless, failed := (&view{}).failedForGood(o), failedBefore(o); hopeless != tc.hopeless || failed != tc.failed {
			t.Errorf("%s: hopeless: %t, failed before: %t", name, hopeless, failed)
		}
	}
}
