package manager

import (
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"sallyport.dev/sallyport/reconcilers/claim"
)

const (
	// leaseName is the name of the lease. It must not change, or replicas of two releases could lead at the same time.
	leaseName = "sallyport-manager"
	// defaultNamespace is the namespace of Sallyport if the manager runs outside of a pod.
	defaultNamespace = "sallyport-system"
	// podNamespaceFile contains the namespace of a pod.
	podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// newHandover makes the lock of leader election. Its client has a rate limit of its own, so that nothing else that this
// process does keeps it from renewing its lease, and a timeout that leaves it a second attempt.
func (o *Options) newHandover(config *rest.Config, locks *claim.Locks) (*claim.Handover, error) {
	own := rest.CopyConfig(config)
	own.RateLimiter = nil
	own.Timeout = o.RenewDeadline / 2
	rest.AddUserAgent(own, "leader-election")
	leases, err := coordinationv1.NewForConfig(own)
	if err != nil {
		return nil, err
	}
	name, err := o.replicaName()
	if err != nil {
		return nil, err
	}
	namespace, err := o.namespace()
	if err != nil {
		return nil, err
	}
	return claim.NewHandover(&resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName},
		Client:    leases,
		// New with every start: a process that comes back under its old name could not know what it was doing before.
		LockConfig: resourcelock.ResourceLockConfig{Identity: name + "_" + string(uuid.NewUUID())},
	}, o.LeaseDuration, o.CallTimeout, locks, time.Now), nil
}

// namespace returns the namespace of the lease and of the Secrets with credentials.
func (o *Options) namespace() (string, error) {
	if o.Namespace != "" {
		return o.Namespace, nil
	}
	text, err := os.ReadFile(podNamespaceFile)
	if os.IsNotExist(err) {
		return defaultNamespace, nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the namespace of this pod (or set --namespace): %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
