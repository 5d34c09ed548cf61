package manager

import (
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	ctrl "sigs.k8s.io/controller-runtime"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/reconcilers/policy/registration"
)

// resources are the resources that the cluster serves. They are cached until a policy names one that is missing.
type resources struct {
	api discovery.CachedDiscoveryInterface
}

func newResources(mgr ctrl.Manager) (*resources, error) {
	api, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	return &resources{memory.NewMemCacheClient(api)}, nil
}

// lacking returns what a policy matches and the cluster does not serve; nothing if that is unknown, which the registration reports.
func (r *resources) lacking(object *v1alpha1.RegoPolicy) []string {
	for _, fresh := range []bool{false, true} {
		if fresh {
			r.api.Invalidate()
		}
		has, err := registration.Discover(r.api)
		if err != nil {
			return nil
		}
		if lines := has.Lacking(object.Spec.Match); len(lines) == 0 || fresh {
			return lines
		}
	}
	return nil
}
