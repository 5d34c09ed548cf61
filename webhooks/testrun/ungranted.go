package testrun

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/webhooks/catalog"
)

// grantsTimeout is the time limit for checking rights. Unknown rights are omitted; the status will have them.
const grantsTimeout = time.Second

// ungranted starts checking which rights are missing for a policy's reads.
func (r *Runner) ungranted(ctx context.Context, object *v1alpha1.RegoPolicy) <-chan []catalog.Grant {
	answer := make(chan []catalog.Grant, 1)
	reads := catalog.ReadsOf(object)
	if r.Ungranted == nil || len(reads) == 0 {
		close(answer)
		return answer
	}
	ctx, cancel := context.WithTimeout(ctx, grantsTimeout)
	go func() {
		defer cancel()
		answer <- r.Ungranted(ctx, object.Name, reads)
	}()
	return answer
}

// withGrants returns a copy of a finding with the missing rights, which are not cached.
func (r *Runner) withGrants(f *Finding, lacking []catalog.Grant) *Finding {
	if len(lacking) == 0 {
		return f
	}
	found, reads := *f, map[string]bool{}
	for _, g := range lacking {
		resource := schema.GroupResource{Group: g.APIGroup, Resource: g.Resource}.String()
		found.Ungranted = append(found.Ungranted, Ungranted{Resource: resource, Verbs: g.Verbs})
		reads[resource] = true
	}
	found.Grant = r.Patchable.By.Upgrade("rbac.reads", reads)
	found.truncate()
	return &found
}
