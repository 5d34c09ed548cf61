package certs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reasons of the events.
const (
	// reasonBroken: data in Sallyport's own Secret could not be used and was replaced.
	reasonBroken = "CertificateBroken"
	// reasonAuthorityReplaced: there is a new certificate authority.
	reasonAuthorityReplaced = "CertificateAuthorityReplaced"
	// reasonIssued: there is a new serving certificate.
	reasonIssued = "CertificateIssued"
	// reasonAuthorityDropped: older authorities are not trusted any more.
	reasonAuthorityDropped = "CertificateAuthorityDropped"
	// reasonBundleWritten: the authorities were written into a webhook configuration.
	reasonBundleWritten = "CABundleWritten"
	// reasonUnusable: a source has had no usable certificate for some time.
	reasonUnusable = "CertificateUnusable"
)

const (
	fieldOwner = "sallyport-certificates"
	// again is when to look again after a conflict.
	again = time.Second
	// maxTrusted limits the authorities in the caBundle that come from elsewhere than the Secret.
	maxTrusted = 8
)

// leader is the reconciler that has the Secrets maintained, and writes the webhook configurations. It reads all of them past every cache:
// they are few, and it is seldom.
type leader struct {
	*Options
	from     []*source
	live     client.Reader
	writer   client.Writer
	replicas Replicas
	events   events.EventRecorder

	reported lasting         // every live replica serves the preferred certificate
	said     map[Mode]string // the fault that the last event was about
}

// Reconcile takes at most one step of a rotation.
func (l *leader) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	now := l.Now()
	// The configurations come first, the Secrets second: see "Who may write" in the package's description.
	configurations, err := l.readConfigurations(ctx, func(client.Object) client.Reader { return l.live })
	if err != nil {
		return ctrl.Result{}, err
	}
	var all []*offer
	for _, s := range l.from {
		secret, err := s.read(ctx, l.live)
		if err != nil {
			return ctrl.Result{}, err
		}
		if s.maintain != nil {
			switch err := s.maintain(ctx, l, secret, now); {
			case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
				return ctrl.Result{RequeueAfter: again}, nil
			case err != nil:
				return ctrl.Result{}, err
			}
		}
		all = append(all, l.offer(s, secret, now))
	}
	l.complain(ctx, all)
	want := choose(all)
	if want == nil {
		return ctrl.Result{RequeueAfter: glance}, nil
	}
	return l.announce(ctx, want, configurations, now)
}

// announce has the webhook configurations trust the preferred certificate, and those that the replicas may still serve.
func (l *leader) announce(ctx context.Context, want *offer, configurations []client.Object, now time.Time) (ctrl.Result, error) {
	taken, err := l.taken(ctx, want, now)
	if err != nil {
		return ctrl.Result{}, err
	}
	trusted := slices.Clone(want.roots)
	older := 0
	all := bundles(configurations, now)
	for _, bundle := range slices.Sorted(maps.Keys(all)) {
		for _, ca := range all[bundle] {
			if !slices.ContainsFunc(trusted, ca.Equal) && older < maxTrusted {
				trusted = append(trusted, ca)
				older++
			}
		}
	}
	if taken {
		trusted = trusted[:len(want.roots)]
	}
	for _, c := range configurations {
		written, err := writeBundle(ctx, l.writer, c, encoded(trusted...))
		switch {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			return ctrl.Result{RequeueAfter: again}, nil
		case err != nil:
			return ctrl.Result{}, err
		case written:
			l.tell(c, told(reasonBundleWritten, "Announce", "The caBundle is that of Secret %s", want.secret))
		}
	}
	if older > 0 && taken {
		l.tell(want.object(), told(reasonAuthorityDropped, "Drop", "Every replica serves the new certificate: older authorities (%d) are no longer trusted", older))
	}
	if len(trusted) > len(want.roots) {
		return ctrl.Result{RequeueAfter: l.Poll}, nil
	}
	return ctrl.Result{RequeueAfter: want.next()}, nil
}

// taken reports whether every live replica has served the preferred certificate for long enough.
func (l *leader) taken(ctx context.Context, want *offer, now time.Time) (bool, error) {
	reports, err := l.replicas.Serving(ctx)
	if err != nil {
		return false, fmt.Errorf("reading which certificates the replicas serve: %w", err)
	}
	hash, all := hashOf(want.leaf.Leaf), len(reports) > 0
	for _, reported := range reports {
		all = all && reported == hash
	}
	return l.reported.so(hash, all, now, l.Settle), nil
}

// complain reports what is wrong with the sources, once.
func (l *leader) complain(ctx context.Context, all []*offer) {
	for _, o := range all {
		fault := ""
		if o.fault != nil {
			fault = o.fault.Error()
		}
		if fault != "" && fault != l.said[o.mode] {
			l.tell(o.object(), news{corev1.EventTypeWarning, reasonUnusable, "Check", fault})
			ctrl.LoggerFrom(ctx).Info("the source of the certificate has a problem", "mode", o.mode, "problem", fault)
		}
		if l.said == nil {
			l.said = map[Mode]string{}
		}
		l.said[o.mode] = fault
	}
}

// news is an event to be.
type news struct{ kind, reason, action, note string }

func told(reason, action, format string, args ...any) news {
	return news{corev1.EventTypeNormal, reason, action, fmt.Sprintf(format, args...)}
}

func (l *leader) tell(about runtime.Object, n news) {
	l.events.Eventf(about, nil, n.kind, n.reason, n.action, "%s", n.note)
}

// lasting tells how long something has been so without a break, as far as this process has seen.
type lasting struct {
	what  string
	since time.Time
}

// so notes whether it is so now, of what, and tells whether it has been for long enough.
func (l *lasting) so(what string, is bool, now time.Time, enough time.Duration) bool {
	if !is {
		*l = lasting{}
		return false
	}
	if l.what != what || l.since.After(now) {
		l.what, l.since = what, now
	}
	return now.Sub(l.since) >= enough
}
