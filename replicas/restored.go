package replicas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
)

// ErrRestored is the error of Start if etcd was restored from a backup. The caches of the process may have objects that no longer exist, and
// their watches may see no change for hours, because they wait for revisions that are to come.
var ErrRestored = errors.New("etcd was restored from a backup")

// Confirm reads the Lease, and returns an [ErrRestored] if etcd was restored since this process started. Without an error, whatever the process
// has read before the call is of this etcd; with one, nothing that was read may be acted on.
func (r *Replica) Confirm(ctx context.Context) error {
	name, _ := r.own()
	latest := r.latest()
	if latest == "" {
		return r.write(ctx, ctrl.LoggerFrom(ctx))
	}
	lease, err := r.leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) { // deleted by a user, or of the lost future: the version of the next one tells
		return r.write(ctx, ctrl.LoggerFrom(ctx))
	}
	if err != nil {
		return fmt.Errorf("reading Lease %s/%s: %w", r.options.Namespace, name, err)
	}
	if err = r.precedes(lease, latest); err != nil {
		r.renew()
	}
	return err
}

// compare records that etcd was restored, if a version of the Lease is lower than one that this process has seen before.
func (r *Replica) compare(lease *coordinationv1.Lease) {
	if err := r.precedes(lease, r.latest()); err != nil {
		r.restored = err
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version = lease.ResourceVersion
}

func (r *Replica) latest() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.version
}

// precedes returns an [ErrRestored] if the version of the Lease is lower than another one. Versions of objects of a kind only rise
// (https://kep.k8s.io/5504).
func (r *Replica) precedes(lease *coordinationv1.Lease, than string) error {
	order, err := resourceversion.CompareResourceVersion(lease.ResourceVersion, cmp.Or(than, lease.ResourceVersion))
	if err != nil || order >= 0 { // an error means that it is not an API server of Kubernetes
		return nil
	}
	return fmt.Errorf("%w: the resourceVersion of Lease %s/%s is %s, and was %s before",
		ErrRestored, r.options.Namespace, lease.Name, lease.ResourceVersion, than)
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
