package replicas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
)

// ErrRestored is the error of Start if etcd was restored from a backup. The caches of the process may have objects that no longer exist, and
// their watches may see no change for hours, because they wait for revisions that are to come.
var ErrRestored = errors.New("etcd was restored from a backup")

// compare records that etcd was restored, if a version of the Lease is lower than one that this process has seen before. Versions of objects
// of a kind only rise (https://kep.k8s.io/5504).
func (r *Replica) compare(lease *coordinationv1.Lease) {
	switch order, err := resourceversion.CompareResourceVersion(lease.ResourceVersion, cmp.Or(r.latest, lease.ResourceVersion)); {
	case err != nil: // not an API server of Kubernetes
	case order < 0:
		r.restored = fmt.Errorf("%w: the resourceVersion of Lease %s/%s is %s, and was %s before",
			ErrRestored, r.options.Namespace, lease.Name, lease.ResourceVersion, r.latest)
	default:
		r.latest = lease.ResourceVersion
	}
}

// endRestored returns the error once the restore is recorded.
func (r *Replica) endRestored(ctx context.Context, log logr.Logger, restored error) error {
	log.Error(restored, "this process ends, so that it reads everything again")
	if r.options.Restored == nil {
		return restored
	}
	if err := wait.PollUntilContextCancel(ctx, r.options.Renew/5+time.Millisecond, true, func(ctx context.Context) (bool, error) {
		err := r.options.Restored(ctx)
		if err != nil {
			log.Error(err, "recording that etcd was restored failed, retrying")
		}
		return err == nil, nil
	}); err != nil {
		return nil // the process ends for another reason
	}
	return restored
}
