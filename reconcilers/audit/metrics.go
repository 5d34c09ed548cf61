package audit

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/objectmetrics"
)

var (
	violationsDesc = prometheus.NewDesc("sallyport_policy_violations",
		"Number of existing objects that a policy would deny, as of its last audit. If that was incomplete, at least so many.", []string{"policy"}, nil)
	auditedDesc = prometheus.NewDesc("sallyport_policy_audited_timestamp_seconds",
		"When the last audit of a policy ended, in seconds since 1970. If there was none, when the policy was created.", []string{"policy"}, nil)
)

// Results returns a collector of the results of audits, which only the leader reports.
func Results(policies client.Reader, elected <-chan struct{}) prometheus.Collector {
	return &objectmetrics.Collector[*v1alpha1.RegoPolicyList]{
		Cache: policies, Elected: elected, Descs: []*prometheus.Desc{violationsDesc, auditedDesc},
		New: func() *v1alpha1.RegoPolicyList { return &v1alpha1.RegoPolicyList{} }, Of: reportResults,
	}
}

func reportResults(list *v1alpha1.RegoPolicyList, report objectmetrics.Report) {
	for i := range list.Items {
		p := &list.Items[i]
		if p.Spec.BackgroundAudit != v1alpha1.AuditEnabled || p.Spec.Match == nil {
			continue
		}
		audited := p.CreationTimestamp
		if v := p.Status.Violations; v != nil {
			audited = v.AuditedAt
			report(violationsDesc, int(cmp.Or(ptr.Deref(v.Count, 0), v.AtLeast)), p.Name)
		}
		report(auditedDesc, int(audited.Unix()), p.Name)
	}
}
