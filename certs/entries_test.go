package certs

import (
	"context"
	"fmt"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// withEntries is a fixture with one configuration more, in which there are no webhooks yet.
func withEntries(t *testing.T, replicas ...string) (*fixture, *Certificates, *admissionregistrationv1.ValidatingWebhookConfiguration) {
	t.Helper()
	f := newFixture(t, replicas...)
	more := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: f.options.Configurations[0] + "-policies"}}
	f.Must(f.api.Create(t.Context(), more))
	t.Cleanup(func() { f.ignore(f.api.Delete(context.Background(), more)) })
	f.options.Configurations = append(f.options.Configurations, more.Name)
	l := f.leader()
	f.lead(l)
	f.take(f.replicas...)
	f.settle(l)
	return f, l, more
}

// appear has one more webhook be there, with that caBundle.
func (f *fixture) appear(c *admissionregistrationv1.ValidatingWebhookConfiguration, bundle []byte) {
	f.Helper()
	f.Must(f.api.Get(f.Context(), client.ObjectKeyFromObject(c), c))
	c.Webhooks = append(c.Webhooks, admissionregistrationv1.ValidatingWebhook{
		Name:         fmt.Sprintf("w%d.certs.test", len(c.Webhooks)),
		ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: bundle, Service: &admissionregistrationv1.ServiceReference{Namespace: "a", Name: "w"}},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"certs.test"}, APIVersions: []string{"v1"}, Resources: []string{"nothings"}},
		}},
		SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
	})
	f.Must(f.api.Update(f.Context(), c))
}

// A configuration without webhooks is nobody's trouble, and what appears in it is trusted like the rest.
func TestWebhooksThatAppear(t *testing.T) {
	f, l, more := withEntries(t, "a")
	f.Must(f.replicas[0].ready())
	f.writes = nil
	now := f.state()
	f.appear(more, now.bundle()) // as whoever registers it finds it
	f.lead(l)
	f.take(f.replicas...)
	f.Must(f.replicas[0].ready())
	if got := f.written(); len(got) != 0 {
		t.Errorf("writes: %v", got)
	}
	f.appear(more, nil)
	f.lead(l)
	f.take(f.replicas...)
	f.Must(f.replicas[0].ready())
	f.handshakes()
	if got := f.written(); len(got) != 1 {
		t.Errorf("writes: %v", got)
	}
}

// One that appears in the middle of a rotation with what was right a moment ago is trusted before anything is served that it
// does not trust.
func TestWebhooksThatAppearDuringARotation(t *testing.T) {
	every := 1
	if testing.Short() {
		every = 3
	}
	for step := 0; step < 8; step += every {
		t.Run(fmt.Sprint(step), func(t *testing.T) {
			f, l, more := withEntries(t, "a", "b")
			first := f.state()
			f.add(20 * day24) // the certificate is due
			for i := range 12 {
				if i == step {
					f.appear(more, first.bundle())
				}
				before := f.replicas[0].hash()
				f.lead(l)
				f.take(f.replicas...)
				if f.replicas[0].hash() != before {
					f.handshakes() // by each bundle that there is
				}
				f.add(10 * time.Second)
			}
			f.settle(l)
			if c := f.state(); c.Leaf.Equal(first.Leaf) || len(c.trusted) != 0 {
				t.Error("the rotation has not come to its end")
			}
			for _, r := range f.replicas {
				f.Must(r.ready())
			}
		})
	}
}
