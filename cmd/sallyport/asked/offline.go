package asked

import (
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/reconcilers/policy/registration"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/offline"
)

// Kinds are those of the chart.
var Kinds = sync.OnceValues(func() (*offline.Kinds, error) {
	crds, err := charts.CRDs()
	if err != nil {
		return nil, err
	}
	return offline.NewKinds(crds)
})

// Reviewer makes a reviewer where there is no cluster: webhooks and kinds are those of the chart.
func Reviewer(o offline.Options) (*offline.Reviewer, error) {
	var err error
	if o.Own, err = Kinds(); err != nil {
		return nil, err
	}
	if o.Hooks, err = hooks(o.Policies); err != nil {
		return nil, err
	}
	o.Unserved = Unserved
	return offline.New(o)
}

// hooks are the webhooks of the chart's configurations, and those that policies get beside them.
func hooks(set *catalog.Set) (*offline.Hooks, error) {
	chart, err := webhooksOfChart()
	if err != nil {
		return nil, err
	}
	var policies []registration.Policy
	for _, p := range set.Policies() {
		policies = append(policies, About(p))
	}
	mutating, validating, never := Registration().Preview(chart.mutating, chart.validating, policies)
	return offline.NewHooks(
		[]admissionregistrationv1.MutatingWebhookConfiguration{*chart.mutating, *mutating},
		[]admissionregistrationv1.ValidatingWebhookConfiguration{*chart.validating, *validating}, never)
}

// Misshapen says which fields of an object of one of our kinds its schema does not have, and which are of another type.
func Misshapen(d *offline.Document) []string {
	known, err := Kinds()
	if err != nil {
		return nil
	}
	return known.Misshapen(d)
}
