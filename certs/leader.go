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
	reasonBroken            = "CertificateBroken"            // unusable data in Sallyport's own Secret was replaced
	reasonAuthorityReplaced = "CertificateAuthorityReplaced" // Sallyport has a new CA
	reasonIssued            = "CertificateIssued"            // Sallyport has issued a certificate
	reasonAuthorityDropped  = "CertificateAuthorityDropped"  // older CAs are no longer trusted
	reasonBundleWritten     = "CABundleWritten"              // the caBundle of a webhook configuration was written
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
	// maxTrusted limits the CAs in the caBundle that come from elsewhere than the Secret.
	maxTrusted = 8
)

// leader is the reconciler that has the Secrets maintained and writes the webhook configurations. It reads both live: they are few, and it
// runs rarely.
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
	result, err := l.reconcile(ctx, l.Now())
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	return result, err
}

func (l *leader) reconcile(ctx context.Context, now time.Time) (ctrl.Result, error) {
	read := func(client.Object) client.Reader { return l.live }
	configurations, all, err := l.look(ctx, l.from, read, now, l)
	if err != nil {
		return ctrl.Result{}, err
	}
	want := choose(all)
	next := l.complain(all, want, now)
	if want == nil {
		return ctrl.Result{RequeueAfter: glance}, nil
	}
	waits, err := l.announce(ctx, want, configurations, now)
	if waits {
		next = l.Poll
	}
	return ctrl.Result{RequeueAfter: min(next, want.next())}, err
}

// announce has the webhook configurations trust the preferred certificate, and those that replicas may still serve. It reports whether it
// waits for replicas.
func (l *leader) announce(ctx context.Context, want *offer, configurations []client.Object, now time.Time) (waits bool, err error) {
	taken, err := l.taken(ctx, want, now)
	if err != nil {
		return false, err
	}
	trusted, older := slices.Clone(want.roots), 0
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
		trusted = want.roots
	}
	wrote := false
	for _, c := range configurations {
		mark := injection(c)
		l.warn(c, reasonTwoWriters, contradiction(mark, l.Injected), now)
		if l.Injected || mark != "" {
			continue
		}
		written, err := writeBundle(ctx, l.writer, c, encoded(trusted...))
		if err != nil {
			return false, err
		}
		if written {
			wrote = true
			l.tell(c, event{corev1.EventTypeNormal, reasonBundleWritten, "Announce", fmt.Sprintf("The caBundle is that of Secret %s", want.secret)})
		}
	}
	if wrote && older > 0 && taken {
		l.tell(want.object(), event{corev1.EventTypeNormal, reasonAuthorityDropped, "Drop",
			fmt.Sprintf("Every replica serves the new certificate: older authorities (%d) are no longer trusted", older)})
	}
	return len(trusted) > len(want.roots) && !l.Injected, nil
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

// complain records what is wrong with the sources, and that replicas should serve the certificate of another one. It returns when to look
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
	if want == nil || want.mode == l.preferred {
		return next
	}
	if l.preferred != "" {
		kind := corev1.EventTypeNormal
		if want.mode != all[0].mode {
			kind = corev1.EventTypeWarning
		}
		l.tell(want.object(), event{kind, reasonSourceChanged, "Change", fmt.Sprintf("The certificate now comes from source %s instead of %s", want.mode, l.preferred)})
	}
	l.preferred = want.mode
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
		l.tell(about, event{corev1.EventTypeWarning, reason, "Check", text})
	}
	if l.warnings == nil {
		l.warnings = map[string]warning{}
	}
	l.warnings[key] = w
}

// contradiction returns why neither, or both, of Sallyport and cainjector would write the caBundle of a configuration with that annotation.
func contradiction(mark string, injected bool) error {
	switch {
	case mark != "" && !injected:
		return fmt.Errorf("annotation %s has cainjector write the caBundle, so Sallyport does not: remove the annotation, or set certs.caBundle to cainjector", mark)
	case mark == "" && injected:
		return errors.New("nobody writes the caBundle: certs.caBundle is cainjector, but there is no annotation " + certmanagerv1.WantInjectAnnotation)
	}
	return nil
}

type event struct{ kind, reason, action, note string }

func (l *leader) tell(about runtime.Object, e event) {
	l.events.Eventf(about, nil, e.kind, e.reason, e.action, "%s", e.note)
}

// lasting is since when something has been so without a break, as far as this process has seen.
type lasting struct {
	what  string
	since time.Time
}

// so records whether it is so now, and of what, and reports whether it has been for long enough.
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
