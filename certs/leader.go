package certs

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	fieldOwner = "sallyport-certificates"
	// again is when to look again after somebody else has written what was to be written.
	again = time.Second
)

// leader is the reconciler that writes the Secret and the webhook configurations. Whatever asks for it, it looks at all of
// them, past every cache: they are few, and it is seldom.
type leader struct {
	*Options
	live     client.Reader
	writer   client.Writer
	replicas Replicas
	events   events.EventRecorder
	self     *server

	announced, takenUp lasting
}

// Reconcile takes at most one step of a rotation, and puts the webhook configurations in order.
func (l *leader) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	now := l.Now()
	// The configurations come first, the Secret second: see "Who may write" in the package's description.
	configurations, err := l.readConfigurations(ctx, func(client.Object) client.Reader { return l.live })
	if err != nil {
		return ctrl.Result{}, err
	}
	secret := l.secret()
	if err := l.live.Get(ctx, l.Secret, secret); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading Secret %s: %w", l.Secret, err)
	}
	reports, err := l.replicas.Serving(ctx)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading which certificates the replicas serve: %w", err)
	}
	c := l.parse(secret.Data, now)
	seen := l.look(&c, configurations, reports, now)
	all, err := l.advance(&c, seen, now)
	if err != nil {
		return ctrl.Result{}, err
	}
	switch err := l.write(ctx, secret, &c, all); {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return ctrl.Result{RequeueAfter: again}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	switch err := l.writeBundles(ctx, configurations, c.bundle()); {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return ctrl.Result{RequeueAfter: again}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: l.next(&c, now)}, nil
}

// look tells what there is beside the Secret. Until every live replica has reported that it serves what is in the Secret,
// the authorities that the webhook configurations trust stay trusted: one of them may have signed what a replica serves.
func (l *leader) look(c *contents, configurations []client.Object, reports map[string]string, now time.Time) sight {
	s := sight{served: l.self.hash() != ""}
	want := ""
	if c.leaf != nil {
		want = hashOf(c.leaf.Leaf)
	}
	all := c.leaf != nil && len(reports) > 0
	for _, hash := range reports {
		s.served = s.served || hash != ""
		all = all && hash == want
	}
	s.takenUp = l.takenUp.so(want, all, now, l.Settle)
	if !all {
		for _, trusted := range bundles(configurations, now) {
			c.trust(trusted...)
		}
	}
	if c.ca != nil {
		s.announced = l.announced.so(hashOf(c.ca.cert), announced(configurations, c.ca.cert, now), now, l.Settle)
	}
	return s
}

// write writes the Secret, if it is not so already, and tells people.
func (l *leader) write(ctx context.Context, secret *corev1.Secret, c *contents, all []news) error {
	data := c.within(secret.Data)
	if sameData(secret.Data, data) {
		return nil
	}
	secret.Data = data
	var err error
	if secret.ResourceVersion == "" {
		secret.Type = corev1.SecretTypeTLS
		err = l.writer.Create(ctx, secret, client.FieldOwner(fieldOwner))
	} else {
		err = l.writer.Update(ctx, secret, client.FieldOwner(fieldOwner))
	}
	if err != nil {
		return fmt.Errorf("writing Secret %s: %w", l.Secret, err)
	}
	if len(c.faults) > 0 {
		l.tell(secret, news{corev1.EventTypeWarning, reasonBroken, "Repair", "No longer used: " + strings.Join(c.faults, "; ")})
	}
	for _, n := range all {
		l.tell(secret, n)
	}
	return nil
}

func (l *leader) writeBundles(ctx context.Context, configurations []client.Object, bundle []byte) error {
	for _, c := range configurations {
		written, err := writeBundle(ctx, l.writer, c, bundle)
		if err != nil {
			return err
		}
		if written {
			l.tell(c, told(reasonBundleWritten, "Announce", "The caBundle is that of Secret %s", l.Secret))
		}
	}
	return nil
}

func (l *leader) tell(about runtime.Object, n news) {
	l.events.Eventf(about, nil, n.kind, n.reason, n.action, "%s", n.note)
}
