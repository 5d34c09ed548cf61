package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
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
	// again is the wait after a conflict.
	again = time.Second
	// patience is the time after which a problem is recorded as an event, and the time between two checks meanwhile.
	patience = time.Minute
	// maxTrusted limits the CAs in the caBundle that come from elsewhere than the Secret.
	maxTrusted = 8
)

// lead maintains the Secrets and writes the webhook configurations. It reads both live: they are few, and it runs rarely. It returns when
// to run again.
func (c *Certificates) lead(ctx context.Context) (wait time.Duration, err error) {
	now := c.Now()
	configurations, all, err := c.read(ctx, now, true)
	if err == nil {
		want := choose(all)
		if c.recordProblems(all, want, now); want == nil {
			return glance, nil
		}
		wait, err = c.announce(ctx, want, configurations, now)
		wait = min(wait, next(all))
	}
	if isConflict(err) {
		return again, nil
	}
	return wait, err
}

// isConflict reports whether another client wrote first.
func isConflict(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }

// announce writes the CAs of the preferred certificate, and of those that replicas may still serve, into the webhook configurations. It
// returns when to run again.
func (c *Certificates) announce(ctx context.Context, want *offer, configurations []client.Object, now time.Time) (time.Duration, error) {
	reports, err := c.replicas.Serving(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading which certificates the replicas serve: %w", err)
	}
	serving := slices.Compact(slices.Sorted(maps.Values(reports)))
	taken := c.taken.so(want.hash(), slices.Equal(serving, []string{want.hash()}), now, c.Settle)
	trusted, known := slices.Clone(want.roots), bundles(configurations, now)
	for _, bundle := range slices.Sorted(maps.Keys(known)) {
		for _, ca := range known[bundle] {
			if !slices.ContainsFunc(trusted, ca.Equal) && len(trusted) < len(want.roots)+maxTrusted {
				trusted = append(trusted, ca)
			}
		}
	}
	older := len(trusted) - len(want.roots)
	if taken {
		trusted = want.roots
	}
	wrote := false
	for _, configuration := range configurations {
		mark := injection(configuration)
		c.warn(configuration, reasonTwoWriters, contradiction(mark, c.Injected), now)
		if c.Injected || mark != "" {
			continue
		}
		written, err := writeBundle(ctx, c.writer, configuration, encoded(trusted...))
		if err != nil {
			return 0, err
		}
		if written {
			wrote = true
			c.record(configuration, event{corev1.EventTypeNormal, reasonBundleWritten, "Announce", fmt.Sprintf("The caBundle is that of Secret %s", want.secret)})
		}
	}
	if wrote && older > 0 && taken {
		c.record(want.object(), event{corev1.EventTypeNormal, reasonAuthorityDropped, "Drop",
			fmt.Sprintf("Every replica serves the new certificate: older authorities (%d) are no longer trusted", older)})
	}
	if older > 0 && !taken && !c.Injected {
		return c.Poll, nil
	}
	return resync, nil
}

// recordProblems records what is wrong with the sources, and that replicas should serve the certificate of another one.
func (c *Certificates) recordProblems(all []*offer, want *offer, now time.Time) {
	c.hint = faults(all)
	for _, o := range all {
		c.warn(o.object(), reasonUnusable, o.wrong, now)
	}
	if want == nil || !want.ofMode() || want.mode == c.preferred {
		return
	}
	if c.preferred != "" {
		kind := corev1.EventTypeNormal
		if want.mode != all[0].mode {
			kind = corev1.EventTypeWarning
		}
		c.record(want.object(), event{kind, reasonSourceChanged, "Change", fmt.Sprintf("The certificate now comes from source %s instead of %s", want.mode, c.preferred)})
	}
	c.preferred = want.mode
}

// warning is a problem of an object: since when it lasts, and the text of the last event about it.
type warning struct {
	since    time.Time
	recorded string
}

// warn records an event about a problem of an object once the problem has lasted for patience, and again if its text changes.
func (c *Certificates) warn(about client.Object, reason string, wrong error, now time.Time) {
	key := keyOf(about)
	if wrong == nil {
		delete(c.warnings, key)
		return
	}
	w := c.warnings[key]
	if w == nil {
		w = &warning{since: now}
		c.warnings[key] = w
	}
	if text := wrong.Error(); now.Sub(w.since) >= patience && text != w.recorded {
		w.recorded = text
		c.record(about, event{corev1.EventTypeWarning, reason, "Check", text})
	}
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

func (c *Certificates) record(about client.Object, e event) {
	c.events.Eventf(about, nil, e.kind, e.reason, e.action, "%s", e.note)
}

// configurations returns empty webhook configurations with their names.
func (o *Options) configurations() (all []client.Object) {
	for _, name := range o.Configurations {
		meta := metav1.ObjectMeta{Name: name}
		all = append(all, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta},
			&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta})
	}
	return all
}

// readConfigurations returns the webhook configurations that exist.
func (o *Options) readConfigurations(ctx context.Context, live client.Reader) (all []client.Object, _ error) {
	for _, c := range o.configurations() {
		err := live.Get(ctx, client.ObjectKeyFromObject(c), c)
		if err == nil {
			all = append(all, c)
		} else if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading webhook configuration %s: %w", c.GetName(), err)
		}
	}
	return all, nil
}

// endpoints returns the client configuration of each webhook.
func endpoints(configuration client.Object) (all []*admissionregistrationv1.WebhookClientConfig) {
	switch c := configuration.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			all = append(all, &c.Webhooks[i].ClientConfig)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			all = append(all, &c.Webhooks[i].ClientConfig)
		}
	}
	return all
}

// bundles returns the different caBundles of webhook configurations, with the CAs in each.
func bundles(configurations []client.Object, now time.Time) map[string][]*x509.Certificate {
	all := map[string][]*x509.Certificate{}
	for _, c := range configurations {
		for _, e := range endpoints(c) {
			if _, known := all[string(e.CABundle)]; known {
				continue
			}
			parsed, _ := cert.ParseCertsPEM(e.CABundle) // API servers trust none of a caBundle that does not parse
			all[string(e.CABundle)] = slices.DeleteFunc(parsed, func(c *x509.Certificate) bool { return !isAuthority(c, now) })
		}
	}
	return all
}

// injection returns the annotation by which cainjector writes the caBundle of a webhook configuration, or nothing.
func injection(configuration client.Object) string {
	for _, mark := range []string{
		certmanagerv1.WantInjectAnnotation, certmanagerv1.WantInjectFromSecretAnnotation, certmanagerv1.WantInjectAPIServerCAAnnotation,
	} {
		if configuration.GetAnnotations()[mark] != "" {
			return mark
		}
	}
	return ""
}

// writeBundle writes only the caBundle of each webhook of a configuration, and reports whether any differed. It returns a conflict if the
// configuration has changed since it was read.
func writeBundle(ctx context.Context, writer client.Writer, configuration client.Object, bundle []byte) (bool, error) {
	before := configuration.DeepCopyObject().(client.Object)
	changed := false
	for _, e := range endpoints(configuration) {
		if !bytes.Equal(e.CABundle, bundle) {
			e.CABundle, changed = bundle, true
		}
	}
	if !changed {
		return false, nil
	}
	// A strategic merge patch merges webhooks by their names, so they keep fields that this program does not know.
	patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
	if err := writer.Patch(ctx, configuration, patch, client.FieldOwner(fieldOwner)); err != nil {
		return false, fmt.Errorf("writing the caBundle of webhook configuration %s: %w", configuration.GetName(), err)
	}
	return true, nil
}
