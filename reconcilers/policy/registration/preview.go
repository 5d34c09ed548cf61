package registration

import admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

// Preview returns the entries that policies get once every replica serves them, given the chart's configurations, and what of each policy
// is never registered, by its name. It uses only the namespace and the paths of the Reconciler, and no cluster.
func (r *Reconciler) Preview(
	mutating *admissionregistrationv1.MutatingWebhookConfiguration, validating *admissionregistrationv1.ValidatingWebhookConfiguration,
	policies []Policy,
) (*admissionregistrationv1.MutatingWebhookConfiguration, *admissionregistrationv1.ValidatingWebhookConfiguration, map[string][]string) {
	m, v := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	never := map[string][]string{}
	reg := &pass{Reconciler: r}
	for i := range policies {
		never[policies[i].Name] = policies[i].neverEvaluated(r.newSides())
	}
	for _, s := range r.newSides() {
		if s.mutating {
			r.sample(s, mutating)
		} else {
			r.sample(s, validating)
		}
		for i := range policies {
			p := &policies[i]
			targets, refused := reg.targets(s, p)
			never[p.Name] = unique(append(never[p.Name], refused...))
			switch {
			case len(targets) == 0 || s.sample == nil:
			case s.mutating:
				for _, e := range reg.want(s, p, targets) {
					m.Webhooks = append(m.Webhooks, e.mutating())
				}
			default:
				for _, e := range reg.want(s, p, targets) {
					v.Webhooks = append(v.Webhooks, e.ValidatingWebhook)
				}
			}
		}
	}
	return m, v, never
}
