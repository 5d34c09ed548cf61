package certs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reasons of the events.
const (
	reasonBroken            = "CertificateBroken"            // data in Sallyport's own Secret could not be used and was replaced
	reasonAuthorityReplaced = "CertificateAuthorityReplaced" // Sallyport has a new CA
	reasonIssued            = "CertificateIssued"            // Sallyport has issued a certificate
	reasonAuthorityDropped  = "CertificateAuthorityDropped"  // older authorities are not trusted any more
	reasonBundleWritten     = "CABundleWritten"              // the authorities were written into a webhook configuration
	reasonUnusable          = "CertificateUnusable"          // a source has had no usable certificate for some time
	reasonSourceChanged     = "CertificateSourceChanged"     // the certificate comes from another source
	reasonTwoWriters        = "CABundleWriters"              // cainjector and Sallyport would both write the caBundle, or neither would
)

const (
	fieldOwner = "sallyport-certificates"
	// again is when to look again after a conflict.
	again = time.Second
	// patience is how long a problem must last before it is recorded as an event, and the time between two checks meanwhile.
	patience = time.Minute
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
	self     *server

	reported  lasting // every live replica serves the preferred certificate
	preferred Mode    // the source of the certificate that replicas should serve
	warnings  map[string]warning
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
		o, err := l.maintained(ctx, s, now)
		switch {
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
			return ctrl.Result{RequeueAfter: again}, nil
		case err != nil:
			return ctrl.Result{}, err
		}
		all = append(all, o)
	}
	want := choose(all)
	next := l.complain(all, want, now)
	if want == nil {
		return ctrl.Result{RequeueAfter: glance}, nil
	}
	result, err := l.announce(ctx, want, configurations, now)
	result.RequeueAfter = min(result.RequeueAfter, next)
	return result, err
}

// maintained has a source maintained, and returns what it then offers.
func (l *leader) maintained(ctx context.Context, s *source, now time.Time) (*offer, error) {
	secret, err := s.read(ctx, l.live)
	if err != nil {
		return nil, err
	}
	var problem error
	if s.maintain != nil {
		if problem, err = s.maintain(ctx, l, secret, now); err != nil {
			return nil, err
		}
	}
	o := l.offer(s, secret, now)
	o.problem = problem
	return o, nil
}

// announce has the webhook configurations trust the preferred certificate, and those that the replicas may still serve.
func (l *leader) announce(ctx context.Context, want *offer, configurations []client.Object, now time.Time) (ctrl.Result, error) {
	taken, err := l.taken(ctx, want, now)
	if err != nil {
		return ctrl.Result{}, err
	}
	trusted := slices.Clone(want.roots)
	older, wrote := 0, false
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
		mark := injection(c)
		l.warn(c, reasonTwoWriters, contradiction(mark, l.Injected), now)
		if l.Injected || mark != "" {
			continue
		}
		written, err := writeBundle(ctx, l.writer, c, encoded(trusted...))
		switch {
		case apierrors.IsConflict(err), apierrors.IsNotFound(err):
			return ctrl.Result{RequeueAfter: again}, nil
		case err != nil:
			return ctrl.Result{}, err
		case written:
			wrote = true
			l.tell(c, told(reasonBundleWritten, "Announce", "The caBundle is that of Secret %s", want.secret))
		}
	}
	if wrote && older > 0 && taken {
		l.tell(want.object(), told(reasonAuthorityDropped, "Drop", "Every replica serves the new certificate: older authorities (%d) are no longer trusted", older))
	}
	if len(trusted) > len(want.roots) && !l.Injected {
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

// complain reports what is wrong with the sources, and that replicas are to serve the certificate of another one. It returns when to look
// again.
func (l *leader) complain(all []*offer, want *offer, now time.Time) time.Duration {
	next := resync
	for _, o := range all {
		wrong := o.wrong()
		l.warn(o.object(), reasonUnusable, wrong, now)
		if wrong != nil || o.problem != nil {
			next = patience
		}
	}
	note(&l.self.hinted, faults(all))
	if want != nil && want.mode != l.preferred {
		kind := corev1.EventTypeNormal
		if want.mode != all[0].mode {
			kind = corev1.EventTypeWarning
		}
		if l.preferred != "" {
			l.tell(want.object(), news{kind, reasonSourceChanged, "Change", fmt.Sprintf("The certificate now comes from source %s instead of %s", want.mode, l.preferred)})
		}
		l.preferred = want.mode
	}
	return next
}

// warning is a problem of an object: since when it lasts, and the text of the last event about it.
type warning struct {
	since time.Time
	told  string
}

// warn records an event about a problem of an object once the problem has lasted for patience, and again if its text changes.
func (l *leader) warn(about client.Object, reason string, wrong error, now time.Time) {
	key := keyOf(about)
	if wrong == nil {
		delete(l.warnings, key)
		return
	}
	w, known := l.warnings[key]
	if !known {
		w.since = now
	}
	if text := wrong.Error(); now.Sub(w.since) >= patience && text != w.told {
		w.told = text
		l.tell(about, news{corev1.EventTypeWarning, reason, "Check", text})
	}
	if l.warnings == nil {
		l.warnings = map[string]warning{}
	}
	l.warnings[key] = w
}

// contradiction says why nobody, or more than one, writes the caBundle of a configuration with that annotation.
func contradiction(mark string, injected bool) error {
	switch {
	case mark != "" && !injected:
		return fmt.Errorf("annotation %s has cainjector write the caBundle, so Sallyport does not: remove the annotation, or set certs.caBundle to cainjector", mark)
	case mark == "" && injected:
		return errors.New("nobody writes the caBundle: certs.caBundle is cainjector, but there is no annotation " + certmanagerv1.WantInjectAnnotation)
	}
	return nil
}

// news is an event that is to be recorded.
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
