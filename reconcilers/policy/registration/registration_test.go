package registration

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sallyport.dev/sallyport/api/v1alpha1"
	"sallyport.dev/sallyport/fairqueue"
)

// A policy comes, changes and goes.
func TestLifeOfAnEntry(t *testing.T) {
	f := newFixture(t)
	f.reconcile() // nothing is known yet
	if _, known := f.Finding("owners"); known || len(f.found) > 0 {
		t.Errorf("something is found of nothing: %v", f.found)
	}

	f.decide("1", policy("owners", on("CU", "deployments.apps"), mutates), policy("own", on("CUD", "virtualmachines.sallyport.dev", "regopolicies.sallyport.dev")))
	f.reconcile()
	f.has("owners Fail: CREATE, UPDATE of deployments.apps", "mutating owners Fail: CREATE, UPDATE of deployments.apps",
		"own Fail: DELETE of virtualmachines.sallyport.dev")
	f.finds("owners", v1alpha1.ReasonRegistered, "Registered for CREATE, UPDATE of deployments.apps.")
	f.finds("own", v1alpha1.ReasonRegistered, "DELETE of virtualmachines.sallyport.dev.")
	entry := f.validating("-policies").Webhooks[1]
	service := entry.ClientConfig.Service
	if service.Namespace != home || service.Name != "sallyport-webhook" || *service.Port != 8443 || *service.Path != "/validate/policies/owners" ||
		string(entry.ClientConfig.CABundle) != "authority" {
		t.Errorf("the API server asks at %+v", entry.ClientConfig)
	}

	// Steady state writes nothing.
	before := f.versions()
	f.found = nil
	if again := f.reconcile(); again != 0 || f.versions() != before || len(f.found) > 0 {
		t.Errorf("looks again after %v, has written %s after %s, found %v", again, f.versions(), before, f.found)
	}

	f.decide("2", policy("owners", on("C", "deployments.apps", "pods"), lenient, func(p *Policy) { p.Generation = 2 }))
	f.reconcile()
	f.has("owners Ignore: CREATE of deployments.apps; CREATE of pods")
	if is, _ := f.Finding("owners"); is.Generation != 2 || !slices.Equal(f.found, []string{"owners"}) {
		t.Errorf("found %+v, told of %v", is, f.found)
	}

	f.Must(f.api.Delete(t.Context(), object("owners"))) // before the catalog has seen it
	f.reconcile()
	f.has()
	f.decide("3")
	f.reconcile()
	if _, known := f.Finding("owners"); known {
		t.Error("something is found of a policy that is gone")
	}
}

// An entry changes when every replica decides by the same policies; that failures are ignored is not waited for.
func TestReplicasAreWaitedFor(t *testing.T) {
	f := newFixture(t)
	f.decide("1", policy("owners", on("C", "deployments.apps")))
	f.replicas["sallyport-b_2"] = ""
	f.replicas["sallyport-a_3"] = "0"
	first := f.reconcile()
	f.has()
	f.finds("owners", v1alpha1.ReasonWaitingForReplicas, "CREATE of deployments.apps", "Not yet: sallyport-a, sallyport-b.")
	f.now = f.now.Add(time.Hour)
	if later := f.reconcile(); first != minPeriod || later != maxPeriod {
		t.Errorf("looks again after %v, and %v an hour later", first, later)
	}
	f.replicas["sallyport-b_2"] = "1"
	f.reconcile()
	f.finds("owners", v1alpha1.ReasonWaitingForReplicas, "Not yet: sallyport-a.")
	delete(f.replicas, "sallyport-a_3")
	f.reconcile()
	f.has("owners Fail: CREATE of deployments.apps")
	f.finds("owners", v1alpha1.ReasonRegistered)

	// One follows late, as all of this changes.
	f.replicas["sallyport-b_2"] = "old"
	stays := "owners Fail: CREATE of deployments.apps"
	for i, change := range []struct {
		what   string
		policy Policy
		now    string
		then   string
	}{
		{"more resources", policy("owners", on("C", "deployments.apps", "pods")), stays, "owners Fail: CREATE of deployments.apps; CREATE of pods"},
		{"fewer resources", policy("owners", on("C", "pods")), "owners Fail: CREATE of deployments.apps; CREATE of pods", "owners Fail: CREATE of pods"},
		{"other resources", policy("owners", on("C", "deployments.apps")), "owners Fail: CREATE of pods", stays},
		{"more operations, and lenient", policy("owners", on("CU", "deployments.apps"), lenient),
			"owners Ignore: CREATE of deployments.apps", "owners Ignore: CREATE, UPDATE of deployments.apps"},
		{"strict again, with fewer operations", policy("owners", on("C", "deployments.apps")),
			"owners Ignore: CREATE, UPDATE of deployments.apps", stays},
	} {
		hash := fmt.Sprint("change ", i)
		f.decide(hash, change.policy)
		f.replicas["sallyport-b_2"] = "old"
		f.reconcile()
		f.has(change.now)
		if change.now != change.then {
			f.finds("owners", v1alpha1.ReasonWaitingForReplicas, "sallyport-b", "the registration stays as it was")
		}
		f.replicas["sallyport-b_2"] = hash
		f.reconcile()
		f.has(change.then)
		f.finds("owners", v1alpha1.ReasonRegistered)
		if t.Failed() {
			t.Fatalf("after %s", change.what)
		}
	}

	// Nobody knows: nothing becomes more, and what is gone goes.
	f.decide("4", policy("other", on("C", "pods")))
	f.unasked = errors.New("no Leases")
	if _, err := f.Reconcile(t.Context(), reconcile.Request{}); !errors.Is(err, f.unasked) {
		t.Errorf("got %v", err)
	}
	f.has()
	f.finds("other", v1alpha1.ReasonWaitingForReplicas, "could not be asked")
}

// What is broken without ever having been good is not registered, and stays so if it was.
func TestBrokenPolicies(t *testing.T) {
	f := newFixture(t)
	f.decide("1", policy("new", on("C", "pods"), broken), policy("known", on("C", "pods")), policy("patches", on("CD", "pods"), func(p *Policy) {
		p.Validates, p.Mutates = false, true
	}))
	f.reconcile()
	f.has("known Fail: CREATE of pods", "mutating patches Fail: CREATE of pods")
	f.finds("new", v1alpha1.ReasonNoGoodRevision, "requests that it matches are admitted without it")

	// Now all are broken, and match more than before. A patch can be made by nobody: who asks is refused, or not, instead.
	f.decide("2", policy("new", on("C", "pods"), broken), policy("known", on("CD", "pods", "services"), broken), policy("patches", on("CD", "pods"), broken))
	f.reconcile()
	f.has("known Fail: CREATE of pods", "patches Fail: CREATE of pods")
	f.finds("known", v1alpha1.ReasonRegistered)
	f.decide("3", policy("new", on("C", "pods"), broken), policy("known", on("CD", "pods", "services"), broken, lenient))
	f.reconcile()
	f.has("known Ignore: CREATE of pods")

	f.decide("4", policy("new", on("C", "pods")), policy("known", on("CD", "pods", "services")))
	f.reconcile()
	f.has("new Fail: CREATE of pods", "known Fail: CREATE, DELETE of pods; CREATE, DELETE of services")
}

// A new leader that has no policies yet leaves entries alone, but for those whose policy is gone.
func TestTheNextLeader(t *testing.T) {
	f := newFixture(t)
	f.decide("1", policy("a", on("C", "pods"), mutates), policy("b", on("C", "pods")))
	f.settles()
	f.lead()
	f.decide("")
	f.Must(f.api.Delete(t.Context(), object("b")))
	f.reconcile()
	f.has("a Fail: CREATE of pods", "mutating a Fail: CREATE of pods")
	if _, known := f.Finding("a"); known {
		t.Error("a leader without policies knows of one")
	}
	f.Must(f.api.Delete(t.Context(), object("a")))
	f.reconcile()
	f.has()
}

// What somebody does to the configurations is undone.
func TestDrift(t *testing.T) {
	f := newFixture(t)
	want := []string{"a Fail: CREATE, UPDATE of pods", "mutating a Fail: CREATE, UPDATE of pods"}
	f.decide("1", policy("a", on("CU", "pods"), mutates))
	f.settles()
	good := f.validating("-policies")
	for what, edit := range map[string]func(*admissionregistrationv1.ValidatingWebhookConfiguration){
		"failurePolicy": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].FailurePolicy = ptr.To(ignore)
		},
		"namespaceSelector": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) { c.Webhooks[0].NamespaceSelector = nil },
		"objectSelector": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
		},
		"matchPolicy": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].MatchPolicy = ptr.To(admissionregistrationv1.Exact)
		},
		"timeoutSeconds": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].TimeoutSeconds = ptr.To(int32(30))
		},
		"matchConditions": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) { c.Webhooks[0].MatchConditions = nil },
		"rules": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].Rules[0].Resources = []string{"services"}
		},
		"path": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].ClientConfig.Service.Path = ptr.To("/x")
		},
		"caBundle": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			c.Webhooks[0].ClientConfig.CABundle = []byte("x")
		},
		"an entry less": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) { c.Webhooks = nil },
		"an entry of a policy that there is not": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			more := *c.Webhooks[0].DeepCopy()
			more.Name = "gone" + suffix
			c.Webhooks = append(c.Webhooks, more)
		},
		"somebody else's entry": func(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
			more := *c.Webhooks[0].DeepCopy()
			more.Name = "validate.example.com"
			c.Webhooks = append(c.Webhooks, more)
		},
	} {
		t.Run(what, func(t *testing.T) {
			edited := f.validating("-policies")
			edit(edited)
			f.Must(f.api.Update(t.Context(), edited))
			f.now = f.now.Add(fairqueue.ContentionPeriod)
			f.reconcile()
			f.has(want...)
			if now := f.validating("-policies"); !equality.Semantic.DeepEqual(now.Webhooks, good.Webhooks) {
				t.Errorf("it is %+v\nwant %+v", now.Webhooks, good.Webhooks)
			}
		})
	}
	t.Run("reinvocationPolicy", func(t *testing.T) {
		c := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: f.named("-policies")}
		f.Must(f.api.Get(t.Context(), client.ObjectKeyFromObject(c), c))
		c.Webhooks[0].ReinvocationPolicy = ptr.To(admissionregistrationv1.IfNeededReinvocationPolicy)
		f.Must(f.api.Update(t.Context(), c))
		f.reconcile()
		f.Must(f.api.Get(t.Context(), client.ObjectKeyFromObject(c), c))
		if *c.Webhooks[0].ReinvocationPolicy != admissionregistrationv1.NeverReinvocationPolicy {
			t.Error("it is asked again")
		}
	})
}

// How Sallyport is reached, and whether what nobody answers passes, is what the chart says.
func TestTheChartsOwn(t *testing.T) {
	f := newFixture(t)
	f.decide("1", policy("a", on("C", "pods")))
	change := func(how func(*admissionregistrationv1.ValidatingWebhook)) {
		t.Helper()
		c := f.validating("")
		how(&c.Webhooks[0])
		f.Must(f.api.Update(t.Context(), c))
		f.reconcile()
	}
	change(func(w *admissionregistrationv1.ValidatingWebhook) { w.ClientConfig.CABundle = nil })
	f.has()
	f.finds("a", v1alpha1.ReasonRegistrationFailed, "ValidatingWebhookConfiguration "+f.name+" has no caBundle for the certificate of Sallyport yet")

	change(func(w *admissionregistrationv1.ValidatingWebhook) { w.ClientConfig.CABundle = []byte("new") })
	f.has("a Fail: CREATE of pods")
	change(func(w *admissionregistrationv1.ValidatingWebhook) {
		w.ClientConfig.CABundle, w.ClientConfig.Service.Port = []byte("new, old"), ptr.To(int32(443))
	})
	if is := f.validating("-policies").Webhooks[0].ClientConfig; string(is.CABundle) != "new, old" || *is.Service.Port != 443 {
		t.Errorf("it is reached at %+v", is)
	}
	change(func(w *admissionregistrationv1.ValidatingWebhook) { w.FailurePolicy = ptr.To(ignore) })
	f.has("a Ignore: CREATE of pods")
	change(func(w *admissionregistrationv1.ValidatingWebhook) { w.ClientConfig.CABundle = nil }) // entries keep what they have
	f.has("a Ignore: CREATE of pods")
	if is := f.validating("-policies").Webhooks[0].ClientConfig; string(is.CABundle) != "new, old" {
		t.Errorf("it is reached at %+v", is)
	}

	chart := f.validating("")
	f.Must(f.api.Delete(t.Context(), chart.DeepCopy()))
	f.decide("2", policy("a", on("C", "pods")), policy("b", on("C", "pods")))
	f.reconcile()
	f.has("a Ignore: CREATE of pods")
	f.finds("b", v1alpha1.ReasonRegistrationFailed, "ValidatingWebhookConfiguration "+f.name, "does not exist")

	// Being uninstalled: nothing is made anew.
	chart.ResourceVersion = ""
	chart.Webhooks[0].ClientConfig.CABundle = []byte("x")
	f.Must(f.api.Create(t.Context(), chart))
	f.Must(f.api.Delete(t.Context(), f.validating("-policies")))
	f.reconcile()
	f.finds("a", v1alpha1.ReasonRegistrationFailed, "ValidatingWebhookConfiguration "+f.name+"-policies does not exist")
	list := &admissionregistrationv1.ValidatingWebhookConfigurationList{}
	f.Must(f.api.List(t.Context(), list))
	for _, c := range list.Items {
		if c.Name == f.Configuration {
			t.Errorf("%s was made", c.Name)
		}
	}
}

// A policy that the API server does not take stands in the way of no other.
func TestWhatTheAPIServerRefuses(t *testing.T) {
	f := newFixture(t)
	bad := on("C", "pods")
	bad.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "not a key!", Operator: "Exists"}}}
	f.decide("1", policy("bad", bad), policy("good", on("C", "pods")))
	f.reconcile()
	f.has("good Fail: CREATE of pods")
	f.finds("bad", v1alpha1.ReasonRegistrationFailed, "namespaceSelector", "not a key!")
	f.finds("good", v1alpha1.ReasonRegistered)

	// One that becomes so keeps the entry that it has.
	f.decide("2", policy("good", bad), policy("another", on("C", "pods")))
	f.reconcile()
	f.has("good Fail: CREATE of pods", "another Fail: CREATE of pods")
	f.finds("good", v1alpha1.ReasonRegistrationFailed)
}

// Whenever the process dies, the next one comes to the same.
func TestCrashes(t *testing.T) {
	for after := range 2 {
		for n := 1; n <= 2; n++ {
			t.Run(fmt.Sprintf("write %d, after it %d", n, after), func(t *testing.T) {
				f := newFixture(t)
				f.decide("1", policy("a", on("C", "pods"), mutates), policy("b", on("C", "pods"), mutates))
				f.settles()
				f.decide("2", policy("b", on("CU", "pods"), mutates), policy("c", on("C", "pods"), mutates))
				f.crash = func(at int, done bool) error {
					if at >= n && done == (after == 1) {
						return errCrash
					}
					return nil
				}
				if _, err := f.Reconcile(t.Context(), reconcile.Request{}); !errors.Is(err, errCrash) {
					t.Fatalf("got %v", err)
				}
				f.crash = nil
				f.lead()
				f.settles()
				f.has("b Fail: CREATE, UPDATE of pods", "c Fail: CREATE of pods", "mutating b Fail: CREATE, UPDATE of pods", "mutating c Fail: CREATE of pods")
			})
		}
	}
}

// One that does not lead any more, and does not know it, loses to the one that does.
func TestTwoLeaders(t *testing.T) {
	f := newFixture(t)
	f.decide("1", policy("a", on("C", "pods")))
	f.reconcile()
	f.decide("2", policy("a", on("CU", "pods")))
	other := f.leader()
	f.crash = func(int, bool) error { // just before the write, the other one writes what it knows
		f.crash = nil
		f.decides = []Policy{policy("a", on("CU", "pods"))}
		_, err := other.Reconcile(t.Context(), reconcile.Request{})
		f.decides = []Policy{policy("a", on("CD", "pods"))}
		return err
	}
	f.decides = []Policy{policy("a", on("CD", "pods"))}
	if again := f.reconcile(); again != minPeriod {
		t.Errorf("looks again after %v", again)
	}
	f.has("a Fail: CREATE, UPDATE of pods")
	f.reconcile()
	f.has("a Fail: CREATE, DELETE of pods")
}

// What may not be written is told.
func TestForbidden(t *testing.T) {
	f := newFixture(t)
	f.decide("1", policy("a", on("C", "pods")), policy("own", on("C", "virtualmachines.sallyport.dev")))
	f.crash = func(int, bool) error { return errCrash }
	if _, err := f.Reconcile(t.Context(), reconcile.Request{}); !errors.Is(err, errCrash) {
		t.Errorf("got %v", err)
	}
	f.finds("a", v1alpha1.ReasonRegistrationFailed, "writing ValidatingWebhookConfiguration "+f.name+"-policies", errCrash.Error())
	f.finds("own", "")
}
