package release

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/cmd/sallyport/plugin/cli"
	"sallyport.dev/sallyport/replicas"
)

const (
	// leaderLease is the name of the Lease of the leader, in the namespace of Sallyport.
	leaderLease = "sallyport-manager"
	// stopPoll is the interval at which Pods and Leases are read until the manager has stopped.
	stopPoll = 250 * time.Millisecond
)

// errScaled means that another client scales the manager up.
var errScaled = errors.New("another client scales the manager up again, such as an autoscaler or a GitOps controller")

// mayI checks all permissions that the following steps need.
func (j *releasing) mayI(ctx context.Context) error {
	var asked []authorizationv1.ResourceAttributes
	if d := j.installed.Deployment; d != nil && j.installed.Replicas > 0 {
		asked = append(asked, authorizationv1.ResourceAttributes{
			Verb: "patch", Group: "apps", Resource: "deployments", Subresource: "scale", Namespace: d.Namespace, Name: d.Name,
		})
	}
	if d := j.installed.Deployment; d != nil {
		asked = append(asked, authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: d.Namespace})
	}
	asked = append(asked, authorizationv1.ResourceAttributes{Verb: "list", Group: "coordination.k8s.io", Resource: "leases"})
	for i := range j.kinds {
		if k := &j.kinds[i]; k.held > 0 {
			asked = append(asked, authorizationv1.ResourceAttributes{Verb: "patch", Group: k.Group, Version: k.Version, Resource: k.Resource})
		}
	}
	asked = append(append(asked, j.unregistering()...), j.marking()...)
	var lacking []string
	for i := range asked {
		allowed, err := j.May(ctx, &asked[i])
		if err != nil {
			return err
		}
		if !allowed {
			lacking = append(lacking, right(&asked[i]))
		}
	}
	if len(lacking) > 0 {
		return fmt.Errorf("missing permissions, nothing was changed: %s", strings.Join(lacking, "; "))
	}
	return nil
}

func right(a *authorizationv1.ResourceAttributes) string {
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	if a.Group != "" {
		resource += " in API group " + a.Group
	}
	where := "in all namespaces"
	if a.Namespace != "" {
		where = "in namespace " + a.Namespace
	}
	return fmt.Sprintf("%s %s %s", a.Verb, resource, where)
}

// stop stops the manager and waits until no Pod and no Lease shows that it runs.
func (j *releasing) stop(ctx context.Context) error {
	if j.installed.Deployment != nil && j.installed.Replicas > 0 {
		if err := j.scale(ctx, 0); err != nil {
			return fmt.Errorf("stopping the manager: %w", err)
		}
		fmt.Fprintf(j.Out, "%s scaled to 0 in namespace %s, was %d%s\n",
			j.installed.Name(), j.installed.Deployment.Namespace, j.installed.Replicas, cli.DryRunSuffix[j.dryRun])
	}
	if j.dryRun != cli.DryRunNone {
		return nil
	}
	return j.awaitEnd(ctx)
}

func (j *releasing) scale(ctx context.Context, replicas int32) error {
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: j.installed.Deployment.Namespace, Name: j.installed.Deployment.Name}}
	err := cli.Writer(j, j.dryRun).SubResource("scale").Patch(ctx, d, patch)
	if apierrors.IsNotFound(err) && replicas == 0 {
		return nil // deleted meanwhile: awaitEnd waits for its Pods
	}
	return err
}

// awaitEnd waits until no Pod and no Lease shows that a manager runs.
func (j *releasing) awaitEnd(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, j.timeout)
	defer cancel()
	seen := cli.NewSigns(j.Now)
	last := ""
	for {
		alive, err := j.alive(limited, seen)
		switch {
		case err == nil && len(alive) == 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("interrupted while waiting for the manager to stop; still running: %s", last)
		case limited.Err() != nil:
			return fmt.Errorf("timed out after %s waiting for the manager to stop; still running: %s", j.timeout, last)
		case errors.Is(err, errScaled), err != nil && !cli.Temporary(err):
			return fmt.Errorf("checking whether the manager has stopped: %w", err)
		}
		text := strings.Join(alive, ", ")
		if err != nil {
			text = err.Error()
		}
		if text != last {
			fmt.Fprintf(j.ErrOut, "Waiting for the manager to stop: %s\n", text)
			last = text
		}
		select {
		case <-limited.Done():
		case <-time.After(stopPoll):
		}
	}
}

// alive lists what shows that a manager runs or will run: Pods, a Deployment whose controller has yet to act, and Leases in all namespaces.
// A process outside of the cluster has only Leases.
func (j *releasing) alive(ctx context.Context, seen *cli.Signs) ([]string, error) {
	var found []string
	if d := j.installed.Deployment; d != nil {
		now, err := j.podsOf(ctx, d)
		if err != nil {
			return nil, err
		}
		found = now
	}
	for _, only := range []client.ListOption{
		client.MatchingFields{metav1.ObjectNameField: leaderLease}, client.MatchingLabels{replicas.Label: "true"},
	} {
		leases := &coordinationv1.LeaseList{}
		if err := j.List(ctx, leases, only); err != nil {
			return nil, err
		}
		for i := range leases.Items {
			if lease := &leases.Items[i]; seen.Held(lease) {
				found = append(found, fmt.Sprintf("Lease %s/%s, held by %s", lease.Namespace, lease.Name, cli.HolderOf(lease)))
			}
		}
	}
	return found, nil
}

// podsOf lists the Pods of a Deployment that have not finished, and the Deployment if its controller has not observed yet that it is scaled
// to 0. A cluster without that controller has no status and no Pods.
func (j *releasing) podsOf(ctx context.Context, d *appsv1.Deployment) ([]string, error) {
	var found []string
	current := &appsv1.Deployment{}
	err := j.Get(ctx, client.ObjectKeyFromObject(d), current)
	switch s := &current.Status; {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, err
	case ptr.Deref(current.Spec.Replicas, 1) > 0:
		return nil, fmt.Errorf("%w: Deployment %s/%s has spec.replicas %d", errScaled, d.Namespace, d.Name, ptr.Deref(current.Spec.Replicas, 1))
	case s.ObservedGeneration != 0 && (s.ObservedGeneration < current.Generation || s.Replicas > 0):
		found = append(found, "Deployment "+d.Namespace+"/"+d.Name)
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil, err
	}
	pods := &corev1.PodList{}
	if err := j.List(ctx, pods, client.InNamespace(d.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			found = append(found, "Pod "+p.Namespace+"/"+p.Name)
		}
	}
	return found, nil
}

// stayed checks that the manager is still stopped, because a manager that started again would have added finalizers.
func (j *releasing) stayed(ctx context.Context) error {
	if j.installed.Deployment == nil || j.dryRun != cli.DryRunNone {
		return nil
	}
	if _, err := j.podsOf(ctx, j.installed.Deployment); err != nil {
		return fmt.Errorf("checking whether the manager is still stopped: %w", err)
	}
	return nil
}
