package replicas

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

// attempts limits the attempts of a write after conflicts, which are rare.
const attempts = 5

// errLeft is the error of writes after Leave.
var errLeft = errors.New("this replica has left and no longer serves requests")

// write renews the Lease with all reports, and creates it if it does not exist.
func (r *Replica) write(ctx context.Context, log logr.Logger) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	if r.left {
		return errLeft
	}
	var err error
	for range attempts {
		if r.restored != nil {
			return r.restored
		}
		if err = r.writeOnce(ctx); err == nil {
			r.held = true
			r.succeeded()
			return r.restored
		}
		switch {
		case apierrors.IsNotFound(err):
			r.known = nil
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
			if err := r.read(ctx, log); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return err
}

func (r *Replica) writeOnce(ctx context.Context) error {
	next := r.next()
	var written *coordinationv1.Lease
	var err error
	if next.ResourceVersion == "" {
		written, err = r.leases.Create(ctx, next, metav1.CreateOptions{})
	} else {
		written, err = r.leases.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("writing Lease %s/%s: %w", r.options.Namespace, next.Name, err)
	}
	r.known = written
	r.compare(written)
	return nil
}

// next returns the Lease to write. It keeps the fields of other clients.
func (r *Replica) next() *coordinationv1.Lease {
	name, reports := r.own()
	lease := r.known.DeepCopy()
	if lease == nil {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: name}}
	}
	now := metav1.NewMicroTime(r.options.Now())
	spec := &lease.Spec
	if !r.isOurs(lease) {
		spec.AcquireTime = &now
		spec.HolderIdentity = &r.identity
	}
	spec.RenewTime = &now
	spec.LeaseDurationSeconds = ptr.To(int32(r.options.Duration / time.Second))
	metav1.SetMetaDataLabel(&lease.ObjectMeta, Label, "true")
	for _, annotation := range []string{VersionAnnotation, CertificateAnnotation, PoliciesAnnotation, DenialsAnnotation} {
		delete(lease.Annotations, annotation)
		if report := reports[annotation]; report != "" {
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, annotation, report)
		}
	}
	lease.OwnerReferences = nil
	if r.options.UID != "" {
		lease.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Pod", Name: r.options.Name, UID: r.options.UID,
		}}
	}
	return lease
}

func (r *Replica) isOurs(lease *coordinationv1.Lease) bool {
	return ptr.Deref(lease.Spec.HolderIdentity, "") == r.identity
}

// read reads the Lease. If another process has taken it, this one moves to another name.
func (r *Replica) read(ctx context.Context, log logr.Logger) error {
	name, _ := r.own()
	lease, err := r.leases.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		r.known = nil
		return nil
	case err != nil:
		return fmt.Errorf("reading Lease %s/%s: %w", r.options.Namespace, name, err)
	}
	if r.compare(lease); r.held && !r.isOurs(lease) {
		r.known, r.held = nil, false
		other := r.move()
		log.Error(nil, "another process uses the name of this replica; continuing under another name: the names of replicas must be unique",
			"name", r.options.Name, "lease", name, "holder", ptr.Deref(lease.Spec.HolderIdentity, ""), "other", other)
		return nil
	}
	r.known = lease
	return nil
}

// move changes to a Lease with a unique name, and returns that name.
func (r *Replica) move() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.name = namePrefix + r.options.Name + "-" + r.identity[len(r.identity)-ownSuffix:]
	return r.name
}

// Leave deletes the Lease of this process, if it still owns it, and prevents further writes. Call it last: no other replica waits for one
// that has left.
func (r *Replica) Leave(ctx context.Context) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.left = true
	name, _ := r.own()
	err := retry.OnError(wait.Backoff{Steps: attempts}, apierrors.IsConflict, func() error {
		lease, err := r.leases.Get(ctx, name, metav1.GetOptions{})
		if err != nil || !r.isOurs(lease) {
			return err
		}
		return r.remove(ctx, lease)
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting Lease %s/%s: %w", r.options.Namespace, name, err)
	}
	return nil
}

// remove deletes a Lease, unless it has changed since it was read.
func (r *Replica) remove(ctx context.Context, lease *coordinationv1.Lease) error {
	return r.leases.Delete(ctx, lease.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion},
	})
}
