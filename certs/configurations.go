package certs

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// configurations returns the webhook configurations with nothing but their names.
func (o *Options) configurations() (all []client.Object) {
	for _, name := range o.Mutating {
		all = append(all, &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, name := range o.Validating {
		all = append(all, &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return all
}

// readConfigurations returns the webhook configurations that exist.
func (o *Options) readConfigurations(ctx context.Context, read func(client.Object) client.Reader) (all []client.Object, _ error) {
	for _, c := range o.configurations() {
		err := read(c).Get(ctx, client.ObjectKeyFromObject(c), c)
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

// writeBundle writes the caBundle of each webhook of a configuration, and nothing else, and reports whether there was anything to write. It
// is a conflict if the configuration was changed since it was read.
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
