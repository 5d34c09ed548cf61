package charts_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// What the program may do about certificates, and is told of them, follows from the mode.
func TestCertificates(t *testing.T) {
	const pem = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"
	secrets, update := " secrets [] [get list watch]", " secrets [sallyport-certificate] [update]"
	writes := " secrets [] [get list watch create]"
	ours := []string{
		"cert-manager.io certificates issuers [] [create]", "cert-manager.io certificates [sallyport-webhook-tls sallyport-webhook-tls-ca] [patch]",
		"cert-manager.io issuers [sallyport-webhook-tls-root sallyport-webhook-tls-ca] [patch]",
	}
	leaf := []string{"cert-manager.io certificates [] [create]", "cert-manager.io certificates [sallyport-webhook-tls] [patch]"}
	for values, test := range map[string]struct {
		rights, args []string
		annotations  map[string]string
	}{
		"":                           {slices.Concat([]string{writes, update}, ours), []string{"--certificate-mode=auto", "--ca-bundle=sallyport"}, nil},
		"certs: null":                {slices.Concat([]string{writes, update}, ours), []string{"--certificate-mode=auto"}, nil},
		"certs: {mode: self-signed}": {[]string{writes, update}, []string{"--certificate-mode=self-signed", "--ca-bundle=sallyport"}, nil},
		"certs: {mode: cert-manager, caBundle: cainjector}": {slices.Concat([]string{secrets}, ours), []string{"--certificate-mode=cert-manager", "--ca-bundle=cainjector"},
			map[string]string{"cert-manager.io/inject-ca-from": namespace + "/sallyport-webhook-tls"}},
		"certs: {mode: cert-manager, issuerRef: {name: corp}}": {
			slices.Concat([]string{secrets}, leaf, []string{"cert-manager.io issuers [corp] [get]"}),
			[]string{"--certificate-mode=cert-manager", "--certificate-issuer=Issuer.cert-manager.io/corp", "--ca-bundle=sallyport"}, nil},
		"certs: {mode: auto, issuerRef: {name: corp, kind: ClusterIssuer}}": {
			slices.Concat([]string{"cert-manager.io clusterissuers [corp] [get]", writes, update}, leaf),
			[]string{"--certificate-mode=auto", "--certificate-issuer=ClusterIssuer.cert-manager.io/corp", "--ca-bundle=sallyport"}, nil},
		"certs: {mode: existing, existingSecret: theirs, issuerRef: {name: corp, kind: ClusterIssuer}, caBundle: cainjector}\nwebhook: {annotations: {a: b}}": {
			[]string{secrets}, []string{"--certificate-mode=existing", "--existing-secret=theirs", "--certificate-issuer=ClusterIssuer.cert-manager.io/corp", "--ca-bundle=cainjector"},
			map[string]string{"a": "b", "cert-manager.io/inject-ca-from-secret": namespace + "/theirs"}},
		"certs: {mode: existing, existingSecret: theirs, caBundle: \"" + strings.ReplaceAll(pem, "\n", "\\n") + "\\n\"}": {
			[]string{secrets}, []string{"--certificate-mode=existing", "--existing-secret=theirs", "--ca-bundle=" + pem}, nil},
	} {
		all := render(t, values)
		var rights, args []string
		for _, kind := range []string{"ClusterRole", "Role"} {
			for _, rule := range rules(t, all, kind, "sallyport") {
				if slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.APIGroups, "cert-manager.io") {
					rights = append(rights, fmt.Sprint(rule.APIGroups[0], " ", strings.Join(rule.Resources, " "), " ", rule.ResourceNames, " ", rule.Verbs))
				}
			}
		}
		if diff := cmp.Diff(test.rights, rights); diff != "" {
			t.Errorf("%q: rights (-want +got):\n%s", values, diff)
		}
		for _, arg := range managerArgs(t, all) {
			for _, flag := range []string{"--certificate-mode=", "--certificate-issuer=", "--existing-secret=", "--ca-bundle="} {
				if strings.HasPrefix(arg, flag) {
					args = append(args, arg)
				}
			}
		}
		if diff := cmp.Diff(test.args, args); diff != "" {
			t.Errorf("%q: flags (-want +got):\n%s", values, diff)
		}
		for _, name := range []string{"sallyport", "sallyport-policies"} {
			validating := rendered[admissionregistrationv1.ValidatingWebhookConfiguration](t, all, "ValidatingWebhookConfiguration", name)
			want := map[string]string{"admissions.enforcer/disabled": "true"} // for AKS
			maps.Copy(want, test.annotations)
			if diff := cmp.Diff(want, validating.Annotations); diff != "" {
				t.Errorf("%q: annotations of %s (-want +got):\n%s", values, name, diff)
			}
			for _, w := range validating.Webhooks {
				if w.ClientConfig.CABundle != nil {
					t.Errorf("%q: %s has a caBundle, which each upgrade would put back", values, w.Name)
				}
			}
		}
	}
}
