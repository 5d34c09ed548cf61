package audit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// The results of audits are shown for policies that are audited. A policy without an audit is as old as if it had had one at its creation.
func TestResults(t *testing.T) {
	list := &v1alpha1.RegoPolicyList{}
	for name, v := range map[string]*v1alpha1.PolicyViolations{
		"new": nil, "off": {Count: new(int32(9))},
		"audited":    {Count: new(int32(3)), AuditedAt: metav1.Unix(100, 0)},
		"incomplete": {AtLeast: 2, AuditedAt: metav1.Unix(200, 0)},
	} {
		p := v1alpha1.RegoPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(50, 0)}}
		p.Spec.Match, p.Status.Violations = &v1alpha1.PolicyMatch{}, v
		if name != "off" {
			p.Spec.BackgroundAudit = v1alpha1.AuditEnabled
		}
		list.Items = append(list.Items, p)
	}
	violations, audited := map[string]int{}, map[string]int{}
	reportResults(list, func(desc *prometheus.Desc, value int, labels ...string) {
		if desc == violationsDesc {
			violations[labels[0]] = value
		} else {
			audited[labels[0]] = value
		}
	})
	if diff := cmp.Diff(map[string]int{"audited": 3, "incomplete": 2}, violations); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]int{"new": 50, "audited": 100, "incomplete": 200}, audited); diff != "" {
		t.Error(diff)
	}
}
