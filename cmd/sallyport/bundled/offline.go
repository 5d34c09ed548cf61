package bundled

import (
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"sallyport.dev/sallyport/charts"
	"sallyport.dev/sallyport/policies"
	"sallyport.dev/sallyport/reconcilers/policy/registration"
	"sallyport.dev/sallyport/webhooks/catalog"
	"sallyport.dev/sallyport/webhooks/offline"
	"sallyport.dev/sallyport/webhooks/policyfiles"
)

// Kinds are the kinds of the chart.
var Kinds = sync.OnceValues(func() (*offline.Kinds, error) {
	crds, err := charts.CRDs()
	if err != nil {
		return nil, err
	}
	return offline.NewKinds(crds)
})

// Reviewer returns a reviewer without a cluster, with the webhooks and kinds of the chart.
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
	var all []registration.Policy
	for _, p := range set.Policies() {
		all = append(all, About(p))
	}
	mutating, validating, never := Registration().Preview(chart.mutating, chart.validating, all)
	return offline.NewHooks(
		[]admissionregistrationv1.MutatingWebhookConfiguration{*chart.mutating, *mutating},
		[]admissionregistrationv1.ValidatingWebhookConfiguration{*chart.validating, *validating}, never)
}

// Release is the release that this program belongs to.
var Release = policyfiles.Release{
	Shipped: policies.Shipped, OptIn: policies.OptIn, Folder: policies.LoadFolder, Manifest: policies.ManifestFile,
	Kinds: Kinds, Check: Check, Unserved: Unserved, Remarks: Remarks,
}
