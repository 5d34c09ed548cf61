package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sallyport.dev/sallyport/commands"
	"sallyport.dev/sallyport/fairqueue"
)

// Reasons of the events.
const (
	reasonBroken           = "CertificateBroken"           // unusable data in Sallyport's own Secret was replaced
	reasonIssued           = "CertificateIssued"           // Sallyport has issued a certificate
	reasonAuthorityDropped = "CertificateAuthorityDropped" // older CAs are no longer trusted
	reasonBundleWritten    = "CABundleWritten"             // the caBundle of a webhook configuration was written
	reasonUnusable         = "CertificateUnusable"         // a source has had no usable certificate for some time
	reasonSourceChanged    = "CertificateSourceChanged"    // the certificate comes from another source
	reasonTwoWriters       = "CABundleWriters"             // another client and Sallyport write the caBundle, or neither would
)

const fieldOwner = "sallyport-certificates"

// lead records problems, and writes the CAs of the preferred certificate, and of those that replicas may still serve, into the webhook
// configurations. It returns when to run again.
func (c *Certificates) lead(ctx context.Context, v *view) (time.Duration, error) {
	for _, o := range v.all {
		c.warn(o.object, reasonUnusable, o.wrong, v.now)
	}
	want, normal := v.want, corev1.EventTypeNormal
	if want == nil {
		return glance, nil
	}
	if c.preferred != "" && want.ofMode && want.mode != c.preferred {
		kind := normal
		if want.mode != v.all[0].mode {
			kind = corev1.EventTypeWarning
		}
		c.events.Eventf(want.object, nil, kind, reasonSourceChanged, "Change", "The certificate now comes from source %s instead of %s", want.mode, c.preferred)
	}
	if want.ofMode {
		c.preferred = want.mode
	}
	taken := c.taken.so(want.hash(), slices.Equal(v.reports, []string{want.hash()}), v.now, c.Settle)
	older, trusted := v.older(), want.roots
	if !taken {
		trusted = slices.Concat(want.roots, older)
	}
	wrote, bundle := false, encoded(trusted...)
	for _, configuration := range v.configurations {
		writes, contradiction := c.writes(configuration)
		if c.warn(configuration, reasonTwoWriters, contradiction, v.now); !writes {
			continue
		}
		written, err := writeBundle(ctx, c.writer, configuration, bundle)
		if err != nil {
			return 0, err
		}
		if written {
			wrote = true
			c.undone(configuration, string(bundle), v.now)
			c.events.Eventf(configuration, nil, normal, reasonBundleWritten, "Announce",
				"The caBundle has the authorities of Secret %s, and %d older", want.secret, len(trusted)-len(want.roots))
		}
	}
	switch {
	case len(older) == 0 || c.Injected:
	case !taken:
		return c.Poll, nil
	case wrote:
		c.events.Eventf(want.object, nil, normal, reasonAuthorityDropped, "Drop",
			"Every replica serves the new certificate: older authorities (%d) are no longer trusted", len(older))
	}
	return next(v.all), nil
}

// undone counts that a caBundle was written, and records an event if it was written before and another client changes it each time. It is
// written all the same: until then API servers do not trust the webhooks.
func (c *Certificates) undone(configuration client.Object, bundle string, now time.Time) {
	key := keyOf(configuration)
	if c.wrote[key] == nil || c.wrote[key].bundle != bundle {
		c.wrote[key] = &wroteBundle{bundle: bundle}
		return
	}
	w := c.wrote[key]
	was := w.Lasts(now)
	if w.Undone(now); w.Lasts(now) && !was {
		kind := reflect.TypeOf(configuration).Elem().Name()
		c.events.Eventf(configuration, nil, corev1.EventTypeWarning, reasonTwoWriters, "Check",
			"Another client changes the caBundle each time Sallyport writes it. To see which: %s",
			commands.Line("kubectl", "get", strings.ToLower(kind), configuration.GetName(), "-o", "yaml", "--show-managed-fields"))
	}
}

// wroteBundle is a caBundle as it was written last.
type wroteBundle struct {
	bundle string
	fairqueue.Contention
}

// older returns the CAs that webhook configurations trust beside those of the preferred certificate, first Sallyport's own that replicas
// serve, if there are too many. The order stays the same after it is written.
func (v *view) older() (all []*x509.Certificate) {
	for _, bundle := range slices.Sorted(maps.Keys(v.bundles)) {
		for _, ca := range v.bundles[bundle] {
			if !slices.ContainsFunc(slices.Concat(v.want.roots, all), ca.Equal) {
				all = append(all, ca)
			}
		}
	}
	reported := func(ca *x509.Certificate) int { return slices.Index(v.reports, hash(ca)) }
	slices.SortStableFunc(all, func(a, b *x509.Certificate) int { return reported(b) - reported(a) })
	return all[:min(len(all), maxOlder)]
}

// warning is a problem of an object: its text and since when it lasts, and the text of the last event.
type warning struct {
	lasting
	recorded string
}

// warn records an event about a problem of an object once its text has been the same for patience, and again if that changes.
func (c *Certificates) warn(about client.Object, reason string, wrong error, now time.Time) {
	key := keyOf(about)
	if wrong == nil {
		delete(c.warnings, key)
		return
	}
	w, text := c.warnings[key], wrong.Error()
	if w.so(text, true, now, patience) && w.recorded != text {
		w.recorded = text
		c.events.Eventf(about, nil, corev1.EventTypeWarning, reason, "Check", "%s", text)
	}
	c.warnings[key] = w
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
			all[string(e.CABundle)] = slices.DeleteFunc(parsed, func(c *x509.Certificate) bool { return now.Before(c.NotBefore) || now.After(c.NotAfter) })
		}
	}
	return all
}

// injectors are the annotations by which cainjector of cert-manager, or the service CA operator of OpenShift, writes the caBundle.
var injectors = []string{
	certmanagerv1.WantInjectAnnotation, certmanagerv1.WantInjectFromSecretAnnotation, certmanagerv1.WantInjectAPIServerCAAnnotation,
	"service.beta.openshift.io/inject-cabundle",
}

// writes reports whether the leader writes the caBundle of a webhook configuration. It is an error if an injector writes
// it, too, or if neither does.
func (o *Options) writes(configuration client.Object) (bool, error) {
	i := slices.IndexFunc(injectors, func(mark string) bool { return configuration.GetAnnotations()[mark] != "" })
	switch {
	case o.Injected && i < 0:
		return false, errors.New("nobody writes the caBundle: certs.caBundle is cainjector, but there is no annotation " + injectors[0])
	case !o.Injected && i >= 0:
		return false, fmt.Errorf("annotation %s has another client write the caBundle, so Sallyport does not: remove the annotation, or set certs.caBundle to cainjector", injectors[i])
	}
	return !o.Injected, nil
}

// writeBundle writes only the caBundle of each webhook of a configuration, and reports whether any differed. It returns a conflict if the
// configuration has changed since it was read.
func writeBundle(ctx context.Context, writer client.Writer, configuration client.Object, bundle []byte) (bool, error) {
	before := configuration.DeepCopyObject().(client.Object)
	for _, e := range endpoints(configuration) {
		e.CABundle = bundle
	}
	if reflect.DeepEqual(before, configuration) {
		return false, nil
	}
	// A strategic merge patch merges webhooks by their names, so they keep fields that this program does not know.
	patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
	if err := writer.Patch(ctx, configuration, patch, client.FieldOwner(fieldOwner)); err != nil {
		return false, fmt.Errorf("writing the caBundle of webhook configuration %s: %w", configuration.GetName(), err)
	}
	return true, nil
}
