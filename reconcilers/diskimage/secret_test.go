package diskimage

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"sallyport.dev/sallyport/api/v1alpha1"
)

// account is a Secret that allows hosts, or none.
func account(hosts string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "account"}, StringData: map[string]string{"secretKey": "hunter2"}}
	if hosts != "" {
		s.Annotations = map[string]string{v1alpha1.AnnotationAllowedHosts: hosts}
	}
	return s
}

func withSecret(i *v1alpha1.VMDiskImage) {
	i.Spec.SecretRef = &v1alpha1.VMDiskImageSecretReference{Name: "account"}
}

// CDI gets the name of a Secret only if its owner or an administrator allows the host, and the image says what to do until then.
func TestSecretIsSentToAllowedHostsOnly(t *testing.T) {
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "account", errors.New("no right"))
	for about, tc := range map[string]struct {
		prepare func(*world)
		reason  v1alpha1.ConditionReason
		says    string
		heal    func(*world)
	}{
		"a Secret that does not exist": {
			func(*world) {}, v1alpha1.ReasonSecretNotFound, "spec.secretRef: Secret account does not exist", func(w *world) { w.make(account("images.example.org")) },
		},
		"a Secret without the annotation": {
			func(w *world) { w.make(account("")) }, v1alpha1.ReasonSecretHostNotAllowed,
			"kubectl annotate secrets/account -n farm sallyport.dev/allowed-hosts=images.example.org",
			func(w *world) {
				w.must(w.Delete(w.Context(), account("")))
				w.make(account("images.example.org"))
			},
		},
		"another host in the annotation": {
			func(w *world) { w.make(account("mirror.example.org, example.org")) }, v1alpha1.ReasonSecretHostNotAllowed,
			"add the host to its annotation sallyport.dev/allowed-hosts: kubectl edit secrets/account -n farm",
			func(w *world) { w.secretHosts = []string{"*.example.org"} },
		},
		"no right to read the Secret": {
			func(w *world) { w.make(account("images.example.org")); w.refused["get Secret"] = denied }, v1alpha1.ReasonPermissionDenied,
			"add images.example.org to diskImages.secretHosts, or namespace farm to rbac.imageSecrets",
			func(w *world) { delete(w.refused, "get Secret") },
		},
	} {
		t.Run(about, func(t *testing.T) {
			w := newImage(t, withSecret)
			tc.prepare(w)
			w.settle()
			w.shows(v1alpha1.VMDiskImagePending, tc.reason)
			w.says(tc.says)
			if w.names() != "" || w.image().Status.Attempt != nil {
				t.Errorf("something was created: %s, %+v", w.names(), w.image().Status.Attempt)
			}
			if told := strings.Join(w.told(), "\n"); !strings.Contains(told, string(tc.reason)) {
				t.Errorf("events: %s", told)
			}
			tc.heal(w)
			w.later(pause)
			if w.names() == "" {
				t.Errorf("nothing is imported: %+v", w.image().Status)
			}
			w.succeed()
		})
	}
}

// The host is checked before every attempt, and once more before the DataVolume is created.
func TestSecretHostIsCheckedBeforeEachAttempt(t *testing.T) {
	w := newImage(t, withSecret)
	w.make(account("images.example.org"))
	if _, err := w.pass(); err != nil || w.image().Status.Attempt == nil {
		t.Fatalf("the attempt does not begin: %v", err)
	}
	w.must(w.Delete(w.Context(), account("")))
	w.make(account("other.example.org"))
	w.settle()
	w.shows(v1alpha1.VMDiskImagePending, v1alpha1.ReasonSecretHostNotAllowed)
	if w.names() != "" {
		t.Errorf("there are %s", w.names())
	}
	w.secretHosts = []string{"images.example.org"}
	w.later(pause)
	w.cdi(cdiv1.DataVolumeStatus{Phase: cdiv1.Failed})
	w.secretHosts = nil
	w.settle()
	w.later(lastPause)
	w.shows(v1alpha1.VMDiskImagePending, v1alpha1.ReasonSecretHostNotAllowed)
	if w.names() != "" {
		t.Errorf("there are %s", w.names())
	}
}

// An image without a Secret needs none, and one whose host an administrator allows has its Secret not read.
func TestSecretThatIsNotRead(t *testing.T) {
	for about, change := range map[string]func(*v1alpha1.VMDiskImage){"without": nil, "allowed": withSecret} {
		w := newImage(t, change)
		w.secretHosts = []string{"images.example.org"}
		w.refused["get Secret"] = errors.New("read")
		w.settle()
		if w.names() == "" {
			t.Errorf("%s: nothing is imported: %+v", about, w.image().Status)
		}
	}
}

// What clients read as one host is one host, and what they read as another is another.
func TestRecipients(t *testing.T) {
	const sum64 = "@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for _, tc := range []struct {
		url, list string
		is        bool
	}{
		{"https://images.example.org/a", "images.example.org", true},
		{"https://images.example.org/a", "other.example.org, images.example.org", true},
		{"https://images.example.org/a", "images.example.org:443", true},
		{"https://images.example.org:443/a", "images.example.org", true},
		{"http://images.example.org/a", "images.example.org", true},
		{"http://images.example.org/a", "images.example.org:443", false},
		{"https://images.example.org/a", "images.example.org:80", false},
		{"https://images.example.org:8443/a", "images.example.org", false},
		{"https://images.example.org:8443/a", "images.example.org:8443", true},
		{"https://IMAGES.example.org/a", "images.EXAMPLE.org", true},
		{"https://images.example.org./a", "images.example.org", true},
		{"https://images.example.org/a", "images.example.org.", true},
		{"https://images.example.org@evil.example/a", "images.example.org", false},
		{"https://images.example.org:x@evil.example/a", "images.example.org, *.example.org", false},
		{"https://ann@images.example.org/a", "images.example.org", true},
		{"https://evil.example/images.example.org", "images.example.org", false},
		{"https://evil.example?images.example.org", "images.example.org", false},
		{"https://evil.example#images.example.org", "images.example.org", false},
		{"https://evil.example\\@images.example.org/", "images.example.org", false},
		{"https://images.example.org.evil.example/", "images.example.org", false},
		{"https://notexample.org/", "*.example.org, example.org", false},
		{"https://example.org/", "*.example.org", false},
		{"https://a.b.example.org/", "*.example.org", true},
		{"https://a.example.org:9000/", "*.example.org", false},
		{"https://a.example.org:9000/", "*.example.org:9000", true},
		{"https://a.example.org/", "*., *.:443, .example.org, , :443", false},
		{"https://a.example.org:9000/", "*", true},
		{"https://[2001:db8::1]/", "2001:DB8:0::1", true},
		{"https://[2001:db8::1]/", "[2001:db8::1]", true},
		{"https://[2001:db8::1]:9000/", "[2001:db8::1]:9000", true},
		{"https://[2001:db8::1]:9000/", "2001:db8::1", false},
		{"https://[::ffff:192.0.2.1]/", "192.0.2.1", true},
		{"https://192.0.2.1/", "::ffff:192.0.2.1", true},
		{"https://[fe80::1%25eth0]/", "fe80::1", false},
		{"https://xn--mller-kva.example/", "xn--mller-kva.example", true},
		{"https://xn--mller-kva.example/", "m\u00fcller.example", false},
		{"https://m%C3%BCller.example/", "xn--mller-kva.example", false},
		{"https://%65vil.example/", "evil.example, *", false},
		{"https://:443/a", "*", false},
		{"s3://store.example.org/bucket/key", "store.example.org", true},
		{"docker://registry.example.org/a/b" + sum64, "registry.example.org", true},
		{"docker://registry.example.org:5000/a/b" + sum64, "registry.example.org", false},
		{"docker://registry.example.org:5000/a/b" + sum64, "registry.example.org:5000", true},
		{"docker://library/b" + sum64, "library", false},
		{"docker://library/b" + sum64, "*", false},
		{"docker://docker.io/library/b" + sum64, "docker.io", true},
		{"docker:///b", "*", false},
	} {
		to, err := recipientOf(&v1alpha1.VMDiskImageSpec{URL: tc.url})
		if is := err == nil && to.in(strings.Split(tc.list, ",")); is != tc.is {
			t.Errorf("%s is in %q: %t (%s, %v)", tc.url, tc.list, is, to, err)
		}
	}
	to, err := recipientOf(&v1alpha1.VMDiskImageSpec{URL: "https://[2001:db8::1]:9000/"})
	if err != nil || to.String() != "[2001:db8::1]:9000" {
		t.Errorf("the recipient is %s, %v", to, err)
	}
}

// A host that cannot be read gets nothing.
func TestRecipientThatIsNotKnown(t *testing.T) {
	w := newImage(t, func(i *v1alpha1.VMDiskImage) { withSecret(i); i.Spec.URL = "https://%65vil.example/" })
	w.secretHosts = []string{"*"}
	w.settle()
	w.shows(v1alpha1.VMDiskImagePending, v1alpha1.ReasonSecretHostNotAllowed)
	if w.names() != "" {
		t.Errorf("there are %s", w.names())
	}
}
